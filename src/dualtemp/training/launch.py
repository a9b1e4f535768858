"""What starting and resuming a run share: execution options, the process group, and the call of the trainer."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dualtemp import distributed
from dualtemp.bf16_on_cpu import refuse_deadly_bf16
from dualtemp.config import Settings
from dualtemp.data.training_data import TrainingData
from dualtemp.device import open_device
from dualtemp.runs.checkpoint import Checkpoint, checkpoints
from dualtemp.runs.folder import RunFolder
from dualtemp.training.failures import Interrupted, describe_last_checkpoint, explain_memory_errors, failure_reason
from dualtemp.training.observers.display import Display
from dualtemp.training.observers.observer import Observer
from dualtemp.training.run_encoder import RunEncoder
from dualtemp.training.signals import REQUEUE, Stopped, requeue_job, stop_signals
from dualtemp.training.teacher import learn_from_teacher
from dualtemp.training.trainer import Trainer


@dataclass(frozen=True)
class ExecutionOptions:
    """Settings that affect execution, not results.

    device: "auto" takes the best one; workers: processes that read image files; threads: of the CPU;
    checkpoint_minutes: save at least this often within an epoch; quiet: print nothing but problems.
    """

    device: str = "auto"
    workers: int | None = None
    threads: int | None = None
    checkpoint_minutes: float = 5.0
    quiet: bool = False

    def open_device(self) -> torch.device:
        """Open the device, and set the number of CPU threads if one is given."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return open_device(self.device)


@dataclass
class PreparedRun:
    """A run that is ready to train: its folder is locked, its data is open, its framework is built.

    checkpoint: where to continue from; None for a new run. teacher: on rank 0 of a new run that has one, already open.
    Both are dropped after use, to free their memory.
    """

    settings: Settings
    method: nn.Module
    data: TrainingData
    run: RunFolder
    device: torch.device
    checkpoint: Checkpoint | None = None
    teacher: RunEncoder | None = None


def refuse_unsafe_bf16(settings: Settings, device: torch.device) -> None:
    """Raise UserError for bfloat16 on a CPU that announces instructions but does not allow them."""
    if settings.amp == "bf16" and device.type == "cpu":
        refuse_deadly_bf16()


@contextmanager
def process_group(run: RunFolder, device: torch.device) -> Iterator[None]:
    """Join the process group; report a lost peer in one line instead of a traceback."""
    with distributed.processes(device), lost_peer_reported(run):
        yield


@contextmanager
def lost_peer_reported(run: RunFolder) -> Iterator[None]:
    """Report a failure caused by a lost peer in one line, and exit with code 2."""
    try:
        yield
    except RuntimeError as error:
        if distributed.world_size() == 1 or not distributed.lost_peer(error):
            raise
        if distributed.rank() < 2:  # rank 0, or rank 1 in case rank 0 is the one that ended
            # Print at once: the supervisor of the processes is about to end this one too.
            print(
                f"dualtemp: another process of this run has ended, and so does this one; "
                f"{describe_last_checkpoint(run)}; start as many processes again, with "
                f"`-m dualtemp resume {run.path}`",
                file=sys.stderr,
                flush=True,
            )
        raise SystemExit(2) from None


def train_prepared(prepared: PreparedRun, options: ExecutionOptions, observer: Observer | None) -> dict[str, Any]:
    """Train to the end; returns the last epoch's metrics. Ctrl-C, SIGTERM and SIGUSR1 save a checkpoint and interrupt.

    After SIGUSR1, the Slurm job is requeued too.
    """
    run, is_first = prepared.run, distributed.rank() == 0
    observer = observer or Display(quiet=options.quiet)
    # `lost_peer_reported` inside `stop_signals`, so that a supervisor's SIGTERM does not end this process unreported.
    with stop_signals() as signal_received, lost_peer_reported(run):

        def stop_requested() -> bool:
            return signal_received() is not None

        try:
            if is_first:
                run.clear_trouble()
                observer.begin(run.path, prepared.settings)
            with explain_memory_errors(prepared.settings, run):
                learn_from_teacher(
                    prepared.settings,
                    prepared.method,
                    prepared.data.images,
                    run,
                    prepared.device,
                    observer,
                    options.workers,
                    stop_requested,
                    prepared.teacher,
                )
                prepared.teacher = None
                return _train(prepared, options, observer, stop_requested)
        except Interrupted:
            asked = signal_received()
            # Any process may have received the signal.
            (requeue,) = distributed.agree(asked is not None and asked == REQUEUE)
        except Exception as error:
            if is_first:
                run.set_trouble(failure_reason(error))
            raise
        finally:
            if is_first:
                observer.close()
    distributed.wait()
    if not is_first:
        raise SystemExit(130)
    kept = checkpoints(run.checkpoints)
    saved = f"saved as {kept[-1].name}" if kept else "what the teacher has seen is saved"
    requeued = f"; {requeue_job()}" if requeue else ""
    raise Stopped(f"stopped; {saved}; go on with `dualtemp resume {run.path}`{requeued}", asked)


def _train(
    prepared: PreparedRun, options: ExecutionOptions, observer: Observer, stop_requested: Callable[[], bool]
) -> dict[str, Any]:
    trainer = Trainer(
        prepared.settings,
        prepared.method,
        prepared.data,
        prepared.run,
        prepared.device,
        observer,
        workers=options.workers,
        checkpoint_minutes=options.checkpoint_minutes,
        stop_requested=stop_requested,
    )
    if prepared.checkpoint is not None:
        trainer.load_state_dict(prepared.checkpoint)
        prepared.checkpoint = None
    return trainer.train()
