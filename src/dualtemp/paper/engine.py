"""The interface through which runs of the paper are started: whoever carries them out is an Engine."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dualtemp.paper.results import Job


class Progress(Protocol):
    """Receives the progress of runs."""

    def moved(self, job: Job, fraction: float) -> None:
        """A run has come this far, from 0 to 1."""
        ...

    def ended(self, job: Job, status: str, reason: str) -> None:
        """A run is over: done, collapsed or failed."""
        ...


class Engine(Protocol):
    """Carries out runs that do not depend on each other; `worker.perform` is one of them, in any process."""

    def run(self, jobs: Sequence[Job], results: Path, progress: Progress) -> Counter[str]:
        """Make all runs, their results below `results`; returns how many were done, collapsed and failed.

        Raises UserError if results cannot be written, and stops all runs on KeyboardInterrupt.
        """
        ...
