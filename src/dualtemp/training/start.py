"""Start a run, or go on with one: data, folder, signals, and the loop between them."""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dualtemp import __version__, distributed
from dualtemp.bf16_on_cpu import refuse_deadly_bf16
from dualtemp.config import Settings, complete, given_settings, settings
from dualtemp.data.images import Splits
from dualtemp.device import open_device
from dualtemp.errors import UserError
from dualtemp.frameworks import build_framework
from dualtemp.machine import cores
from dualtemp.progress_bar import told
from dualtemp.runs.checkpoint import checkpoints, read_latest, refuse_foreign, unpacked
from dualtemp.runs.folder import RunFolder
from dualtemp.training.failures import Interrupted, disk_trouble_told, last_checkpoint, trouble_of
from dualtemp.training.observers.display import Display
from dualtemp.training.observers.observer import Watch
from dualtemp.training.own_images import introduce, with_sensible_settings
from dualtemp.training.run_data import (
    SPLIT,
    check_batch,
    described,
    image_size,
    located,
    opened,
    refuse_other_data,
    training_data,
)
from dualtemp.training.schedule import schedule_change
from dualtemp.training.signals import stop_signals
from dualtemp.training.trainer import fit
from dualtemp.training.training_data import TrainingData


@dataclass(frozen=True)
class How:
    """What decides how a run is computed, but not what it computes."""

    device: str = "auto"
    workers: int | None = None
    threads: int | None = None
    checkpoint_minutes: float = 5.0
    quiet: bool = False


def start(chosen: Settings, out: Path, how: How = How(), watch: Watch | None = None) -> dict[str, Any]:  # noqa: B008
    """Make a run folder and train; returns the last epoch's metrics. A mistake leaves no folder behind."""
    chosen, run, device = located(chosen), RunFolder(out), chosen_device(how)
    refuse_precision(chosen, device)
    with joined(run, device), ExitStack() as held:
        if distributed.from_first(lambda: started_anew(run, chosen)):
            return go_on(out, None, how, watch)
        distributed.from_first(lambda: RunFolder.refuse_existing(out))
        quiet = how.quiet or distributed.rank() > 0
        with told(f"opening {chosen.data}", quiet):
            splits = opened(chosen)
        with told(f"looking at {len(splits.train):,} images", quiet):
            chosen, found = with_sensible_settings(chosen, splits, device)
            chosen = complete(chosen, image_size(splits))
            data = training_data(chosen, splits)
        check_batch(chosen, data)
        method = build_framework(chosen, data.images.channels, data.classes)
        if found is not None and distributed.from_first(lambda: not how.quiet):
            introduce(found, chosen, splits, data, method, device, how.workers)
        made_with = environment(device, splits, data)
        distributed.from_first(lambda: held.enter_context(run.created(chosen, made_with)))
        return _fit(chosen, method, data, run, device, how, watch or Display(quiet=how.quiet))


def go_on(path: Path, epochs: int | None = None, how: How = How(), watch: Watch | None = None) -> dict[str, Any]:  # noqa: B008
    """Go on with a run from its newest checkpoint, if wanted to another number of epochs."""
    run, device = RunFolder(path), chosen_device(how)
    with joined(run, device), ExitStack() as held:

        def reopened() -> tuple[Settings, int | None]:
            RunFolder.opened(path).settings()  # before anything is written: it may not be a run
            held.enter_context(run.reopened())
            return run.settings(), run.threads()

        of_config, threads = distributed.from_first(reopened)
        chosen = of_config
        if how.threads is None and threads is not None:
            torch.set_num_threads(threads)  # sums of another number of threads have other last bits
        if epochs is not None:
            chosen = settings({**chosen.model_dump(exclude_none=True), "epochs": epochs})
        refuse_precision(chosen, device)
        if Path(chosen.data).is_absolute() and not Path(chosen.data).exists():
            raise UserError(f"{chosen.data}, which {path} learns from, is not there: put it back, then resume")
        made_with = distributed.from_first(run.made_with)
        with told(f"opening {chosen.data}", how.quiet or distributed.rank() > 0):
            splits = opened(chosen, made_with)
        distributed.from_first(lambda: refuse_other_data(run, splits))
        data = training_data(chosen, splits, made_with)
        check_batch(chosen, data)
        method = build_framework(chosen, data.images.channels, data.classes)
        watch = watch or Display(quiet=how.quiet)
        if distributed.rank() == 0 and how.threads is None and (threads or 0) > cores():
            watch.note(f"going on with {threads} threads, as it began, on {cores()} cores: --threads may be faster")

        payload, damaged = distributed.from_first(lambda: newest_checkpoint(run))
        saved = None if payload is None else unpacked(payload)
        if saved is not None:
            refuse_foreign(saved, method, path)
        if distributed.rank() == 0:
            for text in damaged:
                watch.note(f"{text}; going on from the checkpoint before it")
            if changes := changed_settings(saved, of_config):
                watch.note(f"{run.config} was changed since the last checkpoint ({changes}); going on as it says now")
        steps = len(data.images) // chosen.batch
        reached = 0 if saved is None else -(-saved["done"] // steps)  # epochs, also one that has only begun
        if saved is not None and reached > chosen.epochs:
            raise UserError(
                f"{path} has reached epoch {reached} already: give --epochs {saved['done'] // steps + 1} or more"
            )
        if saved is not None and saved["done"] == chosen.epochs * steps:
            if distributed.rank() == 0:
                watch.note(f"{path} is finished: {chosen.epochs} epochs; give a larger --epochs to go on")
            return distributed.from_first(lambda: run.history()[-1])
        if saved is not None and distributed.rank() == 0:
            had = saved.get("settings") or of_config.model_dump()
            if change := schedule_change(saved["done"], steps, had, chosen.model_dump()):
                watch.note(change)
        if epochs is not None:
            distributed.from_first(lambda: rewrite_settings(run, chosen))
        del payload
        return _fit(chosen, method, data, run, device, how, watch, saved)


@contextmanager
def joined(run: RunFolder, device: torch.device) -> Iterator[None]:
    """Be one of the processes of a run; that another one has ended is one line."""
    with distributed.processes(device):
        try:
            yield
        except RuntimeError as error:
            if distributed.world_size() == 1 or not distributed.lost_peer(error):
                raise
            if distributed.rank() < 2:  # rank 0 tells what goes wrong, unless it is the one that has ended
                # At once: whoever watches over the processes is about to end this one too.
                print(
                    f"dualtemp: another process of this run has ended, and so does this one; {last_checkpoint(run)}; "
                    f"start as many processes again, with `-m dualtemp resume {run.path}`",
                    file=sys.stderr,
                    flush=True,
                )
            raise SystemExit(2) from None


def started_anew(run: RunFolder, chosen: Settings) -> bool:
    """Whether torchrun has started the processes of this very run again, after one of them had failed."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) == 0 or not run.config.exists():
        return False
    there = run.settings().model_dump()
    same = all(there[name] == value for name, value in given_settings(chosen).items())
    return same and run.made_with().get("launch") == os.environ.get("TORCHELASTIC_RUN_ID")


def newest_checkpoint(run: RunFolder) -> tuple[bytes | None, list[str]]:
    """What to go on from, None at the very beginning; and what was wrong with newer ones."""
    payload, damaged = read_latest(run.checkpoints)
    if payload is None and len(run.history()) > 1:
        raise UserError(f"{run.checkpoints} has no checkpoint to go on from: train anew in another folder")
    return payload, damaged


def rewrite_settings(run: RunFolder, chosen: Settings) -> None:
    """Put changed settings into the run's config."""
    with disk_trouble_told(run):
        run.set_settings(chosen)


def changed_settings(saved: dict[str, Any] | None, chosen: Settings) -> str:
    """What differs from the settings inside a checkpoint: "lr 0.03 -> 0.1"; older checkpoints have none to compare."""
    before = (saved or {}).get("settings", {})
    return ", ".join(
        f"{name} {before[name]} -> {value}"
        for name, value in chosen.model_dump().items()
        if name in before and before[name] != value and name != "epochs"  # a run may be extended
    )


def chosen_device(how: How) -> torch.device:
    """The device to compute on, and the threads that a CPU uses for it."""
    if how.threads is not None:
        torch.set_num_threads(how.threads)
    return open_device(how.device)


def refuse_precision(chosen: Settings, device: torch.device) -> None:
    """Refuse bfloat16 on a CPU that announces instructions which it does not allow."""
    if chosen.amp == "bf16" and device.type == "cpu":
        refuse_deadly_bf16()


def environment(device: torch.device, splits: Splits, data: TrainingData) -> dict[str, Any]:
    """Where and with what a run was made, and of what data."""
    return {
        "dualtemp": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": version("torchvision"),
        "timm": version("timm"),
        "platform": platform.platform(),
        "device": str(device) if device.type != "cuda" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "processes": distributed.world_size(),
        "launch": os.environ.get("TORCHELASTIC_RUN_ID"),
        "split": SPLIT,
        "train": described(splits.train),
        "unlabelled": described(splits.unlabelled),
        "test": described(splits.test),
        "images": {
            "channels": data.images.channels,
            "size": data.views.size,
            "mean": list(data.views.mean),
            "std": list(data.views.std),
            "classes": list(splits.train.classes),
        },
    }


def _fit(
    chosen: Settings,
    method: nn.Module,
    data: TrainingData,
    run: RunFolder,
    device: torch.device,
    how: How,
    watch: Watch,
    saved: dict[str, Any] | None = None,
) -> dict[str, Any]:
    first = distributed.rank() == 0
    with stop_signals() as stop_requested:
        try:
            if first:
                run.clear_trouble()
                watch.begin(run.path, chosen)
            return fit(
                chosen,
                method,
                data,
                run,
                device,
                watch,
                saved=saved,
                workers=how.workers,
                checkpoint_minutes=how.checkpoint_minutes,
                stop_requested=stop_requested,
            )
        except Interrupted:
            pass  # what the loop held is gone before the processes part
        except Exception as error:
            if first:
                run.set_trouble(trouble_of(error))
            raise
        finally:
            if first:
                watch.close()
    distributed.wait()
    if distributed.rank() > 0:
        raise SystemExit(130)
    last = checkpoints(run.checkpoints)[-1].name
    raise KeyboardInterrupt(f"stopped; saved as {last}; go on with `dualtemp resume {run.path}`")
