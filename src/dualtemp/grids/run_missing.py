"""Run what a grid lacks, with one display of the progress of all runs; Ctrl-C and SIGTERM save and stop all of them."""

from collections.abc import Sequence
from pathlib import Path

from dualtemp.engines.engine import Engine
from dualtemp.engines.terminable import terminable
from dualtemp.grids.carry_out import carry_out
from dualtemp.grids.progress import RunsDisplay
from dualtemp.grids.results import Job, Results


def run_missing(jobs: Sequence[Job], engine: Engine, folder: Path, keep: bool = False) -> int:
    """Execute the runs and return how many failed. If interrupted, the same command continues."""
    results = Results(folder)
    results.make_folders()
    for job in jobs:  # only failed runs that are to be retried have a result
        (results.path / f"{job.name}.json").unlink(missing_ok=True)
    with terminable(), RunsDisplay(jobs) as display:
        try:
            outcome = carry_out(jobs, engine, folder, display, keep)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; the same command continues") from None
    return outcome["failed"]
