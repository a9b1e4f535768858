"""The interface through which the paper's runs are started: an Engine carries them out."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dualtemp.paper.results import Job


class Progress(Protocol):
    """Receives the progress of runs."""

    def moved(self, job: Job, fraction: float) -> None:
        """Report how far a run is, from 0 to 1."""
        ...

    def ended(self, job: Job, status: str, reason: str) -> None:
        """Report that a run is over: done, collapsed or failed."""
        ...


class Engine(Protocol):
    """Carries out independent runs; `worker.perform` executes one of them in any process."""

    def run(self, jobs: Sequence[Job], results: Path, progress: Progress) -> Counter[str]:
        """Execute all runs and write their results below `results`; return how many were done, collapsed and failed.

        Raises UserError if results cannot be written, and stops all runs on KeyboardInterrupt.
        """
        ...
