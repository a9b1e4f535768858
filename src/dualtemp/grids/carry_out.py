"""Execute the runs of a grid on an engine: each once, even if other commands work on it; resume lost runs."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dualtemp.engines.engine import Engine, Submitted, Task
from dualtemp.file_lock import held
from dualtemp.grids.results import Job, Results
from dualtemp.grids.worker import BUSY, execute

ATTEMPTS = 2  # at a run whose process is lost; an attempt that was stopped and saved does not count
LOOK = 0.5  # seconds between two looks at progress files, which may be on another machine's disk


class Progress(Protocol):
    """Receives the progress of runs."""

    def moved(self, job: Job, fraction: float) -> None:
        """Report how far a run is, from 0 to 1."""
        ...

    def ended(self, job: Job, status: str, reason: str) -> None:
        """Report that a run is over: done, collapsed or failed."""
        ...


def carry_out(
    jobs: Sequence[Job], engine: Engine, results: Path, progress: Progress, keep: bool = False
) -> Counter[str]:
    """Execute all runs and write their results below `results`; return how many were done, collapsed and failed.

    Runs that another command is executing are waited for. Raises UserError if results cannot be written. On
    KeyboardInterrupt all runs save and stop.
    """
    try:
        return _Grid(jobs, engine, Results(results), progress, keep).carry_out()
    finally:
        engine.close()


class _Grid:
    """Runs by their state: waiting, submitted, or executed by another command."""

    def __init__(self, jobs: Sequence[Job], engine: Engine, results: Results, progress: Progress, keep: bool) -> None:
        self.engine, self.results, self.progress, self.keep = engine, results, progress, keep
        self.waiting = deque(jobs)
        self.submitted: list[tuple[Job, Submitted]] = []
        self.elsewhere: list[Job] = []
        self.lost: Counter[str] = Counter()
        self.outcome: Counter[str] = Counter()
        self.looked_at = 0.0

    def carry_out(self) -> Counter[str]:
        while self.waiting or self.submitted or self.elsewhere:
            self._submit()
            self._receive()
            if time.monotonic() - self.looked_at > LOOK:
                self._look()
                self.looked_at = time.monotonic()
            time.sleep(self.engine.pause)
        return self.outcome

    def _submit(self) -> None:
        free = self.engine.at_once - len(self.submitted)
        jobs = [self.waiting.popleft() for _ in range(min(free, len(self.waiting)))]
        if jobs:
            folder = self.results.path.absolute()
            tasks = [Task(job.name, execute, (job, folder, self.keep)) for job in jobs]
            self.submitted += zip(jobs, self.engine.submit(tasks), strict=True)

    def _receive(self) -> None:
        """Remove ended runs from `submitted`, and handle their outcomes."""
        running = []
        for job, task in self.submitted:
            outcome = task.outcome()
            if outcome is None:
                running.append((job, task))
            elif outcome.lost and self.results.read(job) is None:
                self._lose(job, outcome.lost)
            elif outcome.stopped or outcome.lost:
                self.waiting.append(job)
            elif outcome.value[0] == BUSY:
                self.elsewhere.append(job)
            else:
                self._end(job, *outcome.value)
        self.submitted = running

    def _lose(self, job: Job, why: str) -> None:
        self.lost[job.name] += 1
        self.results.progress_file(job).unlink(missing_ok=True)  # left behind by the killed process
        if self.lost[job.name] < ATTEMPTS:
            self.waiting.append(job)
            return
        reason = f"{why}, twice in succession"
        self.results.write(job, {"status": "failed", "reason": reason})
        self._end(job, "failed", reason)

    def _look(self) -> None:
        """Report progress, and take back runs that another command no longer executes."""
        for job, _ in self.submitted:
            self._report(job)
        left = []
        for job in self.elsewhere:
            if held(self.results.lock_file(job)):
                self._report(job)
                left.append(job)
            elif (there := self.results.read(job)) is not None:
                self._end(job, there["status"], there.get("reason", ""))
            else:
                self.waiting.append(job)
        self.elsewhere = left

    def _report(self, job: Job) -> None:
        fraction = self.results.progress(job)
        if fraction is not None:
            self.progress.moved(job, fraction)

    def _end(self, job: Job, status: str, reason: str) -> None:
        self.outcome[status] += 1
        self.progress.ended(job, status, reason)
