"""Ctrl-C, SIGTERM and the signals of clusters, which the trainer polls between steps.

SIGUSR1 means: save, and have Slurm start this job again (`#SBATCH --signal=USR1@120`). SIGTERM means: save and end; a
job that Slurm preempts is requeued by Slurm itself, and one that a user cancels must not be requeued. SIGUSR2 is the
signal that submitit has Slurm send; submitit then requeues the job.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dualtemp import distributed

REQUEUE = getattr(signal, "SIGUSR1", None)  # Windows has neither
ASKING = tuple(
    number
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2")
    if (number := getattr(signal, name, None)) is not None
)


class Stopped(KeyboardInterrupt):
    """A run has saved a checkpoint and ended because a signal asked for it; number: the signal's."""

    def __init__(self, text: str, number: int | None = None) -> None:  # a default, so that it can be pickled
        super().__init__(text)
        self.number = number


@contextmanager
def stop_signals() -> Iterator[Callable[[], int | None]]:
    """Yield a function that returns the signal that has asked to stop, or None; a second SIGINT interrupts at once."""
    asked: int | None = None

    def ask(number: int, _: Any) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt("stopped at once; the last checkpoint stands")
        if not asked and distributed.rank() == 0:
            with suppress(OSError):  # standard error may be a log on a full disk
                # Not `print`: the signal may have interrupted one.
                os.write(2, b"dualtemp: stopping after this step; once more to stop at once\n")
        asked = asked or number

    try:
        before = {number: signal.signal(number, ask) for number in ASKING}
    except ValueError:  # not in the main thread, where signals cannot be handled: the caller has other ways to stop it
        yield lambda: None
        return
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def requeue_job() -> str:
    """Have Slurm start this job again, if it is a Slurm job; returns a clause that says how that went."""
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return "no Slurm job to requeue"
    try:
        subprocess.run(["scontrol", "requeue", job], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return f"job {job} could not be requeued ({error})"
    return f"job {job} is requeued"
