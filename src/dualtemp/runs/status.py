"""The status of a run, from its folder alone. Needs no torch."""

from typing import Literal, NamedTuple

from dualtemp.file_lock import held
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.thresholds import clearly_below


class Status(NamedTuple):
    """A status, and the reason for it: "failed", "the loss is not finite at step 3 (epoch 1); ..."."""

    word: Literal["running", "done", "interrupted", "failed"]
    reason: str


def status_of(run: RunFolder) -> Status:
    """Status of a run: running while a process holds its lock, else failed, done or interrupted.

    Raises UserError if the config cannot be read.
    """
    return _status(run, running=held(run.lock))


def status_at_rest(run: RunFolder) -> Status:
    """Status of a run whose lock this process holds."""
    return _status(run, running=False)


def _status(run: RunFolder, running: bool) -> Status:
    epochs, history = run.settings().epochs, run.history()
    reached = int(history[-1]["epoch"]) if history else 0
    so_far = f"{reached} of {epochs} epochs"
    if running:
        return Status("running", so_far)
    if run.trouble.is_file():
        return Status("failed", run.trouble.read_text(errors="replace").strip())
    if history and history[-1].get("stopped"):
        fell = clearly_below(history[-1]) or "judged_past" not in history[-1]
        why = "it fell below its start" if fell else "the judge rated an earlier encoder higher"
        return Status("done", f"{so_far}; stopped, because {why}")
    return Status("done" if reached >= epochs else "interrupted", so_far)
