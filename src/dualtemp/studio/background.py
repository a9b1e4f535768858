"""Background jobs for work that takes longer than a click: one at a time, in a thread, with progress on every page."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import Any

from dualtemp.errors import UserError
from dualtemp.studio.events import News

Progress = Callable[[int, int], None]
WAITS_OR_RUNS = ("waiting", "running")
PATIENCE = 10.0  # seconds to wait for a job when the studio closes


class Stopped(Exception):
    """The studio is closing, or the user stopped this job."""


@dataclass
class Job:
    """A job. state: "waiting", "running", "done", "failed" or "stopped"; said: its result or error, in words."""

    id: int
    kind: str
    title: str
    state: str = "waiting"
    done: int = 0
    total: int = 0
    said: str = ""


class Background:
    """Runs jobs one after the other in a thread of its own."""

    def __init__(self, news: News) -> None:
        self.news = news
        self.jobs: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self._queue: SimpleQueue[tuple[Job, Callable[[Progress], str | None]] | None] = SimpleQueue()
        self._stop: set[int] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="studio-background", daemon=True)
        self._thread.start()

    def start(self, kind: str, title: str, work: Callable[[Progress], str | None], alone: str = "") -> Job:
        """Add a job. `work` is called with a function that reports progress, and returns a closing message, if any.

        alone: raise UserError with this text if a job of the same kind is waiting or running.
        """
        with self._lock:
            if alone and any(job.kind == kind and job.state in WAITS_OR_RUNS for job in self.jobs.values()):
                raise UserError(alone)
            job = Job(next(self._numbers), kind, title)
            self.jobs = {**self.jobs, job.id: job}  # a new dict, since another thread may be iterating over the old one
        self._tell(job)
        self._queue.put((job, work))
        return job

    def stop(self, number: int) -> bool:
        """Ask a job to stop when it next reports progress; False if there is no such job to stop."""
        job = self.jobs.get(number)
        if job is None or job.state not in WAITS_OR_RUNS:
            return False
        self._stop.add(number)
        return True

    def busy(self, kind: str) -> bool:
        """Whether a job of this kind is waiting or running."""
        return any(job.kind == kind and job.state in WAITS_OR_RUNS for job in self.jobs.values())

    def listed(self) -> list[dict[str, Any]]:
        """All jobs, for pages."""
        return [asdict(job) for job in list(self.jobs.values())[-20:]]

    def close(self) -> None:
        """Take no more jobs, stop the running one and wait for it: Python must not exit while torch computes."""
        self._closing = True
        self._queue.put(None)
        self._thread.join(PATIENCE)

    def _work(self) -> None:
        while (item := self._queue.get()) is not None and not self._closing:
            job, work = item
            told = 0.0

            def progress(done: int, total: int, job: Job = job) -> None:
                nonlocal told
                if self._closing or job.id in self._stop:
                    raise Stopped
                known, job.done, job.total = job.total, done, total
                share = done / max(1, total)
                if share - told >= 0.01 or done >= total or total != known:
                    told = share
                    self._tell(job)

            try:
                progress(0, 0)
                job.state = "running"
                self._tell(job)
                job.said = work(progress) or ""
                job.state = "done"
            except Stopped:
                job.state, job.said = "stopped", ""
            except Exception as error:  # report any error on the page
                known = isinstance(error, UserError | OSError)
                job.state = "failed"
                job.said = " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())[:500]
            self._tell(job)

    def _tell(self, job: Job) -> None:
        self.news.publish("job", job=asdict(job))
