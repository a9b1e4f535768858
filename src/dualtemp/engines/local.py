"""Tasks on this machine, in processes that load torch once and execute task after task.

Each place has its own ProcessPoolExecutor with a single process: if a process is killed, only its own task is lost, and
a place never has two tasks. submitit's local executor was the alternative, but it starts a process for every task, and
loading torch takes longer than a small run.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for_ends
from typing import Any

from dualtemp.engines.engine import Outcome, Place, Task, outcome_of_error

PATIENCE = 60.0  # seconds for a process to save its run when everything is stopped

_at_work = threading.Lock()  # in a place's process: held while it executes a task


class LocalEngine:
    """An Engine of processes on this machine, one for each of `places`."""

    pause = 0.05

    def __init__(self, places: Sequence[Place]) -> None:
        self._slots = [_Slot(place) for place in places]

    @property
    def at_once(self) -> int:
        """The number of places."""
        return len(self._slots)

    def submit(self, tasks: Sequence[Task]) -> Sequence["LocalTask"]:
        """Give each task a free place."""
        free = [slot for slot in self._slots if slot.is_free]
        return [slot.submit(task) for slot, task in zip(free[: len(tasks)], tasks, strict=True)]

    def close(self) -> None:
        """Stop all processes; one that is executing a task saves it first."""
        for slot in self._slots:
            slot.send(signal.SIGTERM)
        running = [slot.running for slot in self._slots if slot.running is not None]
        wait(running, timeout=PATIENCE)
        for slot in self._slots:
            slot.send(signal.SIGKILL)
            slot.close()


class LocalTask:
    """A task at a place of this machine."""

    def __init__(self, future: "Future[Any]") -> None:
        self.future = future

    def outcome(self) -> Outcome | None:
        """Return how it ended; None while it runs."""
        if not self.future.done():
            return None
        error = self.future.exception()
        if isinstance(error, BrokenProcessPool):
            return Outcome(lost="its process was killed")
        return Outcome(value=self.future.result()) if error is None else outcome_of_error(error)


class _Slot:
    """A place, its process, and the task that it executes."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.executor: ProcessPoolExecutor | None = None
        self.process: Future[int] | None = None
        self.running: Future[Any] | None = None

    @property
    def is_free(self) -> bool:
        return self.running is None or self.running.done()

    def submit(self, task: Task) -> LocalTask:
        for _ in range(2):
            if self.executor is None:
                spawn = multiprocessing.get_context("spawn")
                self.executor = ProcessPoolExecutor(1, mp_context=spawn, initializer=_end_with_parent)
                self.process = self.executor.submit(os.getpid)
            try:
                self.running = self.executor.submit(_carry_out, task, self.place)
                return LocalTask(self.running)
            except BrokenProcessPool:  # its process was killed, during the last task or later
                self.close()
        raise RuntimeError("a new process cannot be started")

    def send(self, number: int) -> None:
        """Send a signal to the process if it is executing a task; cancel a task that has not begun."""
        if self.running is None or self.running.done() or self.running.cancel():
            return
        with contextlib.suppress(ProcessLookupError, BrokenProcessPool):
            if self.process is not None:
                os.kill(self.process.result(timeout=PATIENCE), number)

    def close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)
        self.executor = self.process = self.running = None


def _carry_out(task: Task, place: Place) -> Any:
    with _at_work:
        return task.call(place, *task.arguments)


def _end_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end if the parent is killed, since it then never closes this process's queue."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for_ends([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)  # a run in training saves; anything else ends at once
        with _at_work:
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
