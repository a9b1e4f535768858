"""Execute a grid's missing runs with one progress display; Ctrl-C and SIGTERM save and stop all of them."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dualtemp.engines.engine import Engine
from dualtemp.engines.terminable import terminable
from dualtemp.errors import writing
from dualtemp.file_lock import Busy, locked
from dualtemp.grids.carry_out import carry_out
from dualtemp.grids.progress import RunsDisplay
from dualtemp.grids.results import Job, Results


def run_missing(jobs: Sequence[Job], engine: Engine, folder: Path, keep: bool = False) -> int:
    """Execute the runs and return how many failed. If interrupted, the same command continues."""
    results = Results(folder)
    results.make_folders()
    for job in jobs:
        forget_failure(job, results)
    begun = [job.name for job in jobs if results.run_folder(job).exists()]
    with terminable(), RunsDisplay(jobs, begun=begun) as display:
        try:
            outcome = carry_out(jobs, engine, folder, display, keep)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; the same command continues") from None
    return outcome["failed"]


def forget_failure(job: Job, results: Results) -> None:
    """Remove the result of a run that failed and is to be retried.

    Nothing is removed if another command has finished the run meanwhile, or is executing it.
    """
    file = results.path / f"{job.name}.json"
    if not file.exists():
        return
    lock = locked(results.lock_file(job), patience=0, remove=True)
    with suppress(Busy), writing(results.runs, "give another --results"), lock:
        there = results.read(job)
        if there is not None and there["status"] == "failed":
            file.unlink()
