"""Start a run, or go on with one: data, folder, signals, and the loop between them."""

import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from dualtemp import __version__, distributed
from dualtemp.config import Settings, complete, from_yaml, settings
from dualtemp.data import open_source
from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.label_noise import with_label_noise
from dualtemp.data.normalisation import normalisation
from dualtemp.data.views import Views
from dualtemp.errors import UserError
from dualtemp.training.checkpoint import checkpoints
from dualtemp.training.display import Display
from dualtemp.training.loop import Interrupted, TrainingData, Watch, fit
from dualtemp.training.run_folder import RunFolder

PHOTOGRAPH_SIZE = 224


@dataclass(frozen=True)
class How:
    """What decides how a run is computed, but not what it computes."""

    device: str = "auto"
    workers: int | None = None
    threads: int | None = None
    checkpoint_minutes: float = 5.0
    quiet: bool = False


def train(
    *,
    out: Path | str,
    config: Path | str | None = None,
    device: str = "auto",
    workers: int | None = None,
    threads: int | None = None,
    checkpoint_minutes: float = 5.0,
    quiet: bool = False,
    watch: Watch | None = None,
    **values: Any,
) -> dict[str, Any]:
    """Train an encoder: what `dualtemp train` does, with the same words; returns the last epoch's metrics.

    Args:
        out: the run's folder; must be new.
        config: settings in a YAML file; those given by name come before them.
        device: "auto" takes the best there is.
        workers: processes that read photographs.
        threads: of the CPU.
        checkpoint_minutes: at the latest so often, and every epoch.
        quiet: say nothing but what is wrong.
        watch: is told of steps and epochs instead of the terminal.
        values: settings by name, see `dualtemp.config.Settings`: data="cifar10", method="simco", tau_beta=1.0 ...

    Example:
        >>> dualtemp.train(data="digits", method="simco", epochs=10, batch=64, out="runs/digits")  # doctest: +SKIP
    """
    chosen = settings({**(from_yaml(Path(config)) if config is not None else {}), **values})
    return start(chosen, Path(out), How(device, workers, threads, checkpoint_minutes, quiet), watch)


def resume(run: Path | str, epochs: int | None = None, *, watch: Watch | None = None, **how: Any) -> dict[str, Any]:
    """Go on with a run: what `dualtemp resume` does; `how` as in `train`. Returns the last epoch's metrics."""
    return go_on(Path(run), epochs, How(**how), watch)


def start(chosen: Settings, out: Path, how: How = How(), watch: Watch | None = None) -> dict[str, Any]:  # noqa: B008
    """Make a run folder and train; returns the last epoch's metrics."""
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    if again and (out / "config.yaml").exists():  # torchrun has started the processes anew
        return go_on(out, None, how, watch)
    with distributed.processes():
        RunFolder.refuse_existing(out)
        device = chosen_device(how)
        splits = opened(chosen)
        chosen = complete(chosen, image_size(splits))
        data = training_data(chosen, splits)
        check_batch(chosen, data)
        distributed.wait()  # all processes have seen that there is no run yet
        run = RunFolder(out)
        if distributed.rank() == 0:
            run.create(chosen, environment(device, splits))
        return _fit(chosen, data, run, device, how, watch)


def go_on(path: Path, epochs: int | None = None, how: How = How(), watch: Watch | None = None) -> dict[str, Any]:  # noqa: B008
    """Go on with a run from its newest checkpoint, if wanted to another number of epochs."""
    run = RunFolder.opened(path)
    chosen = run.settings()
    if epochs is not None:
        chosen = settings({**chosen.model_dump(exclude_none=True), "epochs": epochs})
        reached = max((line["epoch"] for line in run.history()), default=0)
        if epochs < reached:
            raise UserError(f"{path} has {reached} epochs already: give --epochs {reached} or more")
    with distributed.processes():
        device = chosen_device(how)
        data = training_data(chosen, opened(chosen))
        if distributed.rank() == 0:
            run.lock()
            if epochs is not None:
                run.set_settings(chosen)
        return _fit(chosen, data, run, device, how, watch)


def opened(chosen: Settings) -> Splits:
    """The data of a run; on several processes, rank 0 first, which may have to fetch it."""
    if distributed.rank() > 0:
        distributed.wait()
    splits = open_source(chosen.data)
    if distributed.rank() == 0:
        distributed.wait()
    if chosen.subset is not None:
        splits = Splits(splits.train.subset(chosen.subset, chosen.seed), splits.test, None, splits.unreadable)
    if chosen.method == "supervised":
        if splits.train.labels is None:
            raise UserError(f"supervised learning needs labels, and {chosen.data} has none: choose another --method")
        if chosen.label_noise:
            splits = with_label_noise(splits, chosen.noise or "symmetric", chosen.label_noise, chosen.seed)
    return splits


def training_data(chosen: Settings, splits: Splits) -> TrainingData:
    """What the loop sees of the data."""
    assert chosen.image_size is not None
    mean, std = normalisation(chosen.data, splits.train.pixels)
    views = Views(chosen.recipe, chosen.image_size, chosen.seed, mean, std)
    images = splits.train if chosen.method == "supervised" else splits.pretraining
    labelled = splits.train.labels is not None and splits.test is not None and splits.test.labels is not None
    return TrainingData(
        images, splits.train if labelled else None, splits.test, views, classes=_classes(splits) if labelled else 0
    )


def _classes(splits: Splits) -> int:
    if splits.train.classes:
        return len(splits.train.classes)
    return 1 + max(int(part.labels.max()) for part in (splits.train, splits.test) if part and part.labels is not None)


def image_size(splits: Splits) -> int:
    """The side of a view if nobody says otherwise: that of the images, 224 for photographs."""
    side = splits.train.size
    return PHOTOGRAPH_SIZE if side is None else max(side)


def check_batch(chosen: Settings, data: TrainingData) -> None:
    """Refuse batches that the data cannot fill, and dictionaries' parts that are larger than the whole."""
    if chosen.batch > len(data.images):
        raise UserError(
            f"batch {chosen.batch} is larger than the set of {len(data.images)} images: give --batch "
            f"{1 << (len(data.images).bit_length() - 1)} or fewer"
        )
    if chosen.batch % distributed.world_size():
        raise UserError(f"batch {chosen.batch} cannot be shared by {distributed.world_size()} processes evenly")
    for name in ("vector_size", "scalar_size"):
        part = getattr(chosen, name)
        if part is not None and chosen.dictionary_size is not None and part > chosen.dictionary_size:
            raise UserError(f"{name} {part} is larger than dictionary_size {chosen.dictionary_size}")


def chosen_device(how: How) -> torch.device:
    """The device to train on, and the threads that a CPU uses for it."""
    if how.threads is not None:
        torch.set_num_threads(how.threads)
    name = how.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {name!r} cannot be used ({str(error).splitlines()[0]}): try --device cpu") from None
    if device.type == "cuda" and device.index is None and distributed.world_size() > 1:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


def environment(device: torch.device, splits: Splits) -> dict[str, Any]:
    """Where and with what a run was made, and of what data."""
    def described(part: ImageSet | None) -> dict[str, Any] | None:
        if part is None:
            return None
        return {"images": len(part), "fingerprint": part.fingerprint if part.in_memory else None}

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
        "train": described(splits.train),
        "unlabelled": described(splits.unlabelled),
        "test": described(splits.test),
    }


def _fit(
    chosen: Settings, data: TrainingData, run: RunFolder, device: torch.device, how: How, watch: Watch | None
) -> dict[str, Any]:
    display = Display(chosen.epochs, quiet=how.quiet) if watch is None else None
    with _stop_signals() as stop_requested:
        try:
            return fit(
                chosen,
                data,
                run,
                device,
                watch or display,  # pyright: ignore
                workers=how.workers,
                checkpoint_minutes=how.checkpoint_minutes,
                stop_requested=stop_requested,
            )
        except Interrupted:
            last = checkpoints(run.checkpoints)[-1].name if distributed.rank() == 0 else ""
            raise KeyboardInterrupt(f"stopped; saved as {last}; go on with `dualtemp resume {run.path}`") from None
        finally:
            if display is not None:
                display.close()


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and a polite kill into a question that the loop asks between steps; the second Ctrl-C is at once."""
    asked = False

    def ask(number: int, _: Any) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt("stopped at once; the last checkpoint stands")
        asked = True
        print("dualtemp: stopping after this step; once more to stop at once", file=sys.stderr, flush=True)

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs there has other ways
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
