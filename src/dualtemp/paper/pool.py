"""Runs in parallel: processes that load torch once and make run after run. Needs no torch itself."""

import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from dualtemp.errors import UserError
from dualtemp.paper.results import Job, Results
from dualtemp.paper.worker import BUSY, work

PATIENCE = 60.0  # seconds that a process gets to save its run when all is stopped
ATTEMPTS = 2  # at a run whose process was killed


class Progress(Protocol):
    """Who is told how things go."""

    def moved(self, job: Job, fraction: float) -> None:
        """So much of a run is made."""
        ...

    def ended(self, job: Job, status: str, reason: str) -> None:
        """A run is over: done, collapsed or failed."""
        ...


@dataclass
class Worker:
    """A process, the way to it, and what it is doing."""

    process: Any
    connection: Connection
    device: str
    job: Job | None = None


@dataclass(frozen=True)
class Crew:
    """How runs are made: on which devices (one process each), with how many threads; whether run folders are kept."""

    devices: Sequence[str]
    threads: int = 1
    keep: bool = False


def run_jobs(jobs: Sequence[Job], results: Path, crew: Crew, progress: Progress) -> Counter[str]:
    """Make all runs; returns how many were done, collapsed or failed.

    Runs that another process is making are waited for, and made here if it gives up. A disk that cannot be written ends
    all: UserError.
    """
    waiting, busy_until = deque(jobs), dict.fromkeys((job.name for job in jobs), 0.0)
    attempts: Counter[str] = Counter()
    outcome: Counter[str] = Counter()
    workers = [_hired(device, results, crew) for device in crew.devices[: max(1, len(jobs))]]
    try:
        while waiting or any(worker.job for worker in workers):
            _hand_out(workers, waiting, busy_until)
            for place, worker in enumerate(workers):
                if worker.job is None:
                    continue
                message = _heard(worker)
                if message == "dead":
                    job, code = worker.job, worker.process.exitcode
                    workers[place] = _hired(worker.device, results, crew)
                    attempts[job.name] += 1
                    if attempts[job.name] < ATTEMPTS:
                        waiting.append(job)
                        continue
                    reason = f"its process was ended twice, last with code {code}"
                    Results(results).write(job, {"status": "failed", "reason": reason})
                    outcome["failed"] += 1
                    progress.ended(job, "failed", reason)
                elif message is not None and message[0] == "trouble":
                    raise UserError(message[1])
                elif message is not None and message[0] == "step":
                    progress.moved(worker.job, message[1])
                elif message is not None:
                    job, worker.job = worker.job, None
                    if message[1] == BUSY:
                        busy_until[job.name] = time.monotonic() + 1.0
                        waiting.append(job)
                        continue
                    outcome[message[1]] += 1
                    progress.ended(job, message[1], message[2])
            active = [w for w in workers if w.job is not None]
            if active:
                wait([x for w in active for x in (w.connection, w.process.sentinel)], timeout=0.5)
            elif waiting:
                time.sleep(0.2)
    finally:
        _dismiss(workers)
    return outcome


def _hired(device: str, results: Path, crew: Crew) -> Worker:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there, results, device, crew.threads, crew.keep), daemon=True)
    process.start()
    there.close()  # or its end would not be noticed
    return Worker(process, here, device)


def _hand_out(workers: list[Worker], waiting: deque[Job], busy_until: dict[str, float]) -> None:
    for worker in workers:
        ready = next((job for job in waiting if busy_until[job.name] <= time.monotonic()), None)
        if worker.job is None and ready is not None:
            waiting.remove(ready)
            worker.job = ready
            try:
                worker.connection.send(ready)
            except OSError:  # its process has been ended; noticed in the next round
                continue


def _heard(worker: Worker) -> Any:
    """The next message of a worker, None if there is none, "dead" if its process has ended."""
    try:
        if worker.connection.poll():
            return worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join(5)
        return "dead"
    return None if worker.process.is_alive() or worker.connection.poll() else "dead"


def _dismiss(workers: list[Worker]) -> None:
    """End all processes; one that is within a run saves it first."""
    for worker in workers:
        worker.connection.close()
        if worker.job is not None:
            worker.process.terminate()
    deadline = time.monotonic() + PATIENCE
    for worker in workers:
        worker.process.join(max(0.1, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
