"""Runs in parallel on this machine, in processes that load torch once and execute run after run. Needs no torch."""

import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError
from dualtemp.paper.engine import Progress
from dualtemp.paper.results import Job, Results
from dualtemp.paper.worker import BUSY, work

PATIENCE = 60.0  # seconds that a process gets to save its run when everything is stopped
ATTEMPTS = 2  # at a run whose process is killed


@dataclass
class Worker:
    """A process, the connection to it, and its current job."""

    process: Any
    connection: Connection
    device: str
    job: Job | None = None


@dataclass(frozen=True)
class ProcessPool:
    """An Engine of processes on this machine, one for each entry of `devices`.

    threads: CPU threads of each process; keep: leave run folders in RESULTS/runs.
    """

    devices: Sequence[str]
    threads: int = 1
    keep: bool = False

    def run(self, jobs: Sequence[Job], results: Path, progress: Progress) -> Counter[str]:
        """Execute all runs (see `Engine.run`), and wait for those that another command is executing."""
        waiting, busy_until = deque(jobs), dict.fromkeys((job.name for job in jobs), 0.0)
        attempts: Counter[str] = Counter()
        outcome: Counter[str] = Counter()
        workers = [_start_worker(device, results, self) for device in self.devices[: max(1, len(jobs))]]
        try:
            while waiting or any(worker.job for worker in workers):
                _hand_out(workers, waiting, busy_until)
                for place, worker in enumerate(workers):
                    if worker.job is None:
                        continue
                    message = _receive(worker)
                    if message == "dead":
                        job, code = worker.job, worker.process.exitcode
                        workers[place] = _start_worker(worker.device, results, self)
                        attempts[job.name] += 1
                        if attempts[job.name] < ATTEMPTS:
                            waiting.append(job)
                            continue
                        reason = f"its process was killed twice, last with code {code}"
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
            _stop(workers)
        return outcome


def _start_worker(device: str, results: Path, pool: ProcessPool) -> Worker:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=work, args=(there, results, device, pool.threads, pool.keep), daemon=True)
    process.start()
    there.close()  # otherwise the end of the process would not be noticed
    return Worker(process, here, device)


def _hand_out(workers: list[Worker], waiting: deque[Job], busy_until: dict[str, float]) -> None:
    for worker in workers:
        ready = next((job for job in waiting if busy_until[job.name] <= time.monotonic()), None)
        if worker.job is None and ready is not None:
            waiting.remove(ready)
            worker.job = ready
            try:
                worker.connection.send(ready)
            except OSError:  # its process was killed; noticed in the next round
                continue


def _receive(worker: Worker) -> Any:
    """Return the next message of a worker, None if there is none, or "dead" if its process has ended."""
    try:
        if worker.connection.poll():
            return worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join(5)
        return "dead"
    return None if worker.process.is_alive() or worker.connection.poll() else "dead"


def _stop(workers: list[Worker]) -> None:
    """Stop all processes; one that is executing a run saves it first."""
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
