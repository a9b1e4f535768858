"""Resume a run from its newest checkpoint, to the same final bits or to another number of epochs."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dualtemp import distributed
from dualtemp.config import Settings, settings
from dualtemp.data.images import Splits
from dualtemp.data.sources.opening import means_shards
from dualtemp.errors import UserError
from dualtemp.frameworks import build_framework
from dualtemp.machine import cores
from dualtemp.models.weights import initialize
from dualtemp.progress_bar import status_line
from dualtemp.runs.checkpoint import Checkpoint, read_latest, refuse_foreign, unpack
from dualtemp.runs.folder import RunFolder
from dualtemp.training.adaptation import check_adaptation
from dualtemp.training.failures import explain_disk_errors, explain_memory_errors
from dualtemp.training.initial_weights import initial_weights
from dualtemp.training.launch import (
    ExecutionOptions,
    PreparedRun,
    process_group,
    refuse_unsafe_bf16,
    train_prepared,
)
from dualtemp.training.observers.display import Display
from dualtemp.training.observers.observer import Observer
from dualtemp.training.run_data import check_batch, known_environment, open_data, refuse_other_data, training_data
from dualtemp.training.schedule import schedule_change


def resume_run(
    path: Path,
    epochs: int | None = None,
    options: ExecutionOptions = ExecutionOptions(),  # noqa: B008
    observer: Observer | None = None,
) -> dict[str, Any]:
    """Continue a run; returns the last epoch's metrics.

    epochs: train up to this many, even if the run is finished; default: the number in its config.yaml.
    """
    run, device = RunFolder(path), options.open_device()
    observer = observer or Display(quiet=options.quiet)
    with process_group(run, device), ExitStack() as held:
        recorded, threads = distributed.run_on_rank0(lambda: reopen(run, held))
        if options.threads is None and threads is not None:
            torch.set_num_threads(threads)  # the number at the start: another would change the last bits of sums
        chosen = recorded
        if epochs is not None:
            chosen = settings({**recorded.model_dump(exclude_none=True), "epochs": epochs})
        refuse_unsafe_bf16(chosen, device)
        splits, environment = reopen_splits(run, chosen, options)
        checkpoint, problems = load_checkpoint(run)
        data = training_data(with_begun_holdout(run, chosen, checkpoint), splits, environment)
        check_batch(chosen, data)
        refuse_other_batch(run, chosen, checkpoint)
        refuse_other_beginning(run, chosen, checkpoint)
        load = run_start(run) if checkpoint is not None else initial_weights(chosen, data, run_start(run))
        with explain_memory_errors(chosen, run):
            method = build_framework(chosen, data.images.channels, data.classes, len(data.images), load)
        check_adaptation(chosen, method.framework.network.backbone, data.bank is not None)
        if distributed.rank() == 0 and options.threads is None and (threads or 0) > cores():
            observer.note(f"using {threads} threads, as at first, on {cores()} cores: --threads may be faster")

        if checkpoint is not None:
            refuse_foreign(checkpoint, method, path)
        if distributed.rank() == 0:
            edits, processes = describe_edits(run, checkpoint, recorded), describe_processes(run, method, device)
            for text in (*problems, *edits, *processes):
                observer.note(text)
        steps = len(data.images) // chosen.batch
        if checkpoint is not None:
            refuse_fewer_epochs(path, checkpoint.done, steps, chosen.epochs)
            if checkpoint.done == chosen.epochs * steps:
                if distributed.rank() == 0:
                    observer.note(f"{path} is finished: {chosen.epochs} epochs; give a larger --epochs to go on")
                return distributed.run_on_rank0(lambda: last_metrics(run))
            asked = [name for name in ("stop_below_start", "stop_by_judge") if getattr(chosen, name)]
            if asked and distributed.run_on_rank0(lambda: has_stopped(run)):
                if distributed.rank() == 0:
                    observer.note(
                        f"{path} has stopped early, and keeps the better encoder: to continue all the same, set "
                        f"{' and '.join(asked)} to false in {run.config}"
                    )
                return distributed.run_on_rank0(lambda: last_metrics(run))
            before = checkpoint.settings or recorded.model_dump()
            change = schedule_change(checkpoint.done, steps, before, chosen.model_dump())
            if change and distributed.rank() == 0:
                observer.note(change)
        if epochs is not None:
            distributed.run_on_rank0(lambda: write_settings(run, chosen))
        prepared = PreparedRun(chosen, method, data, run, device, checkpoint)
        del checkpoint
        return train_prepared(prepared, options, observer)


def reopen(run: RunFolder, held: ExitStack) -> tuple[Settings, int | None]:
    """Lock an existing run; returns its settings and the CPU threads that it began with."""
    RunFolder.open(run.path).settings()  # raises if it is not a run, before anything is written
    held.enter_context(run.reopen())
    return run.settings(), run.threads()


def reopen_splits(run: RunFolder, chosen: Settings, options: ExecutionOptions) -> tuple[Splits, dict[str, Any]]:
    """Open the run's data, and read its environment.json; raises UserError if the images have changed."""
    gone = Path(chosen.data).is_absolute() and not Path(chosen.data).exists()
    if gone and not means_shards(chosen.data):
        raise UserError(f"{chosen.data}, which {run.path} learns from, is missing: put it back, then resume")
    environment = distributed.run_on_rank0(lambda: known_environment(run, chosen))
    with status_line(f"opening {chosen.data}", options.quiet or distributed.rank() > 0):
        splits = open_data(chosen, environment)
    distributed.run_on_rank0(lambda: refuse_other_data(run, splits))
    return splits, environment


def with_begun_holdout(run: RunFolder, chosen: Settings, checkpoint: Checkpoint | None) -> Settings:
    """Return the settings with which to open the run's data, so that images held out at first stay held out.

    Otherwise a change of `stop_below_start` in config.yaml would change the images of an epoch, and with them the
    number of its steps.
    """
    if checkpoint is None:
        return chosen
    measured = (checkpoint.start or {}).get("right") is not None
    begun = measured or bool(checkpoint.settings.get("stop_below_start", False))
    if chosen.stop_below_start and not begun:
        raise UserError(
            f"{run.config}: stop_below_start is for a run that began with it, to compare with its start: set it to "
            "false, or train anew"
        )
    return chosen.model_copy(update={"stop_below_start": begun})


def refuse_other_batch(run: RunFolder, chosen: Settings, checkpoint: Checkpoint | None) -> None:
    """Raise UserError if the batch is not the checkpoint's, which determines how steps and epochs are counted."""
    before = chosen.batch if checkpoint is None else checkpoint.settings.get("batch", chosen.batch)
    if before != chosen.batch:
        raise UserError(
            f"{run.config}: batch {chosen.batch}, but {run.path} counts its steps by batches of {before}: put it back, "
            f"or train anew with --init {run.path}, which starts from what it has learned"
        )


def refuse_other_beginning(run: RunFolder, chosen: Settings, checkpoint: Checkpoint | None) -> None:
    """Raise UserError if config.yaml names other initial weights than the run had: its pages would be wrong."""
    began = {} if checkpoint is None else checkpoint.settings
    for name in ("init", "whiten_stem"):
        now = getattr(chosen, name)
        if (before := began.get(name, now)) != now:
            raise UserError(
                f"{run.config}: {name} {now}, but {run.path} began with {before}: put it back, or train anew"
            )


def run_start(run: RunFolder) -> Callable[[nn.Module], None] | None:
    """Return a function that loads the run's start; None if the run keeps none, as in earlier versions."""
    return (lambda backbone: initialize(backbone, run.start)) if run.start.is_file() else None


def load_checkpoint(run: RunFolder) -> tuple[Checkpoint | None, list[str]]:
    """Load the newest good checkpoint on every rank (None if there is none); also returns why newer ones are not."""
    payload, damaged = distributed.run_on_rank0(lambda: _read_newest(run))
    checkpoint = None if payload is None else unpack(payload)
    return checkpoint, [f"{text}; going on from the checkpoint before it" for text in damaged]


def describe_edits(run: RunFolder, checkpoint: Checkpoint | None, recorded: Settings) -> list[str]:
    """Note settings of config.yaml that differ from the checkpoint's ("lr 0.03 -> 0.1"); old checkpoints have none."""
    before = {} if checkpoint is None else checkpoint.settings
    changes = ", ".join(
        f"{name} {before[name]} -> {value}"
        for name, value in recorded.model_dump().items()
        if name in before and before[name] != value and name != "epochs"  # a run may be extended
    )
    return [f"{run.config} was changed since the last checkpoint ({changes}); using the new values"] * bool(changes)


def describe_processes(run: RunFolder, method: nn.Module, device: torch.device) -> list[str]:
    """Note if another number of processes makes it another run: batch norm that is not synchronized (train_step.py)."""
    before, now = run.processes(), distributed.world_size()
    shared = device.type == "cuda" or not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in method.modules())
    if before in (None, now) or shared:
        return []
    return [
        f"processes: {before} at first, {now} now; batch norm of each process sees another share of the batch, so this "
        "continues as another run, with other results (docs/cluster.md)"
    ]


def refuse_fewer_epochs(path: Path, done: int, steps: int, epochs: int) -> None:
    """Raise UserError for fewer epochs than the run has reached; an epoch that has begun counts."""
    reached = -(-done // steps)
    if reached > epochs:
        raise UserError(f"{path} has reached epoch {reached} already: give --epochs {done // steps + 1} or more")


def last_metrics(run: RunFolder) -> dict[str, Any]:
    """Return the metrics of a run's last epoch; empty if metrics.jsonl is missing."""
    history = run.history()
    return history[-1] if history else {}


def has_stopped(run: RunFolder) -> bool:
    """Whether the last epoch of a run has ended it early."""
    return bool(last_metrics(run).get("stopped"))


def write_settings(run: RunFolder, chosen: Settings) -> None:
    """Replace the run's config.yaml."""
    with explain_disk_errors(run):
        run.set_settings(chosen)


def _read_newest(run: RunFolder) -> tuple[bytes | None, list[str]]:
    payload, damaged = read_latest(run.checkpoints)
    # A run killed between its first epoch's metrics and its first checkpoint has one line, and begins anew.
    if payload is None and len(run.history()) > (1 if run.checkpoints.is_dir() else 0):
        raise UserError(f"{run.checkpoints} has no checkpoint to go on from: train anew in another folder")
    return payload, damaged
