"""A pool of worker processes that may be killed or stopped at any moment without hanging the process that uses it.

Python's own pool hangs in such cases: forked workers inherit the main process's signal handlers, so they survive the
SIGTERM by which the pool ends them, and a stopped process does not answer SIGTERM at all. Our workers need no orderly
end, so they are ended by SIGKILL.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from multiprocessing import connection
from pathlib import Path
from typing import Any

FORKS = sys.platform == "linux"  # workers then share the main process's memory
_context: Any = multiprocessing.get_context("fork" if FORKS else "spawn")
_MAIN_DECIDES = (signal.SIGINT,)  # Ctrl-C reaches the whole process group; workers ignore it
_LOOK_FOR_PARENT = 1.0  # seconds


class WorkerPool:
    """Processes that call functions; `close`, or losing one of them, ends them all."""

    def __init__(self, workers: int, initializer: Callable[..., None], *arguments: Any) -> None:
        """Prepare `workers` processes that begin with initializer(*arguments); they start with the first call."""
        self._context = _RecordingContext()
        self._executor = ProcessPoolExecutor(
            workers, mp_context=self._context, initializer=initializer, initargs=arguments
        )

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a worker call the function; raises BrokenProcessPool if one of them has died."""
        return self._executor.submit(function, *arguments)

    def close(self) -> None:
        """Kill all workers, whatever they are doing; on return none of them is running."""
        for process in self._context.started:
            process.terminate()
        self._executor.shutdown(wait=True)

    @property
    def pids(self) -> list[int]:
        """The processes that were started."""
        return [process.pid for process in self._context.started]

    def deaths(self) -> list[str]:
        """Wait until a broken pool has ended its workers; return those that had died before: "4711 (SIGKILL)"."""
        self._executor.shutdown(wait=True)
        died = [process for process in self._context.started if process.exitcode and not process.dismissed]
        return [f"{process.pid} ({_cause(process.exitcode)})" for process in died]

    def stopped(self) -> list[int]:
        """The workers that are stopped, by SIGSTOP or a debugger; empty if the system does not tell."""
        return [pid for pid in self.pids if _state(pid) in ("T", "t")]


def wait_for(futures: Sequence[Future[Any]], patience: float, on_delay: Callable[[int], None]) -> None:
    """Wait for all futures, or for one that fails.

    If none of them is finished for `patience` seconds, on_delay(seconds) is called, and again each time that the wait
    has doubled. Time during which this process itself is stopped (Ctrl-Z, a sleeping laptop) does not count.
    """
    pending, waited, due = set(futures), 0.0, patience
    while pending:
        pause = min(1.0, patience)
        done, pending = wait(pending, pause, FIRST_EXCEPTION)
        if any(future.exception() is not None for future in done):
            return
        waited = 0.0 if done else waited + pause
        if waited >= due:
            on_delay(round(waited))
            due *= 2


class _WorkerProcess(_context.Process):
    """A process that drops the main process's signal handlers, and whose `terminate` sends SIGKILL."""

    dismissed = False

    def start(self) -> None:
        with _signals_held_back():  # a signal before run() must not call the main process's handlers
            super().start()

    def run(self) -> None:
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_IGN if number in _MAIN_DECIDES else signal.SIG_DFL)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        threading.Thread(target=_end_with_parent, daemon=True).start()
        super().run()

    def terminate(self) -> None:
        # A process that is just dying still counts as alive, but has already closed its sentinel.
        if self.is_alive() and not connection.wait([self.sentinel], 0):
            self.dismissed = True
        self.kill()


class _RecordingContext(type(_context)):
    """Creates worker processes, and remembers them."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Any] = []

    def Process(self, *arguments: Any, **keywords: Any) -> Any:  # noqa: N802 (the pool's name for it)
        self.started.append(_WorkerProcess(*arguments, **keywords))
        return self.started[-1]


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """End this process when its parent has ended.

    This polls, because the other workers also inherit the pipe that multiprocessing offers for it, and a stopped worker
    would keep it open.
    """
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive() and os.getppid() == parent.pid:
        time.sleep(_LOOK_FOR_PARENT)
    os._exit(1)


def _cause(exitcode: int) -> str:
    try:
        return signal.Signals(-exitcode).name if exitcode < 0 else f"exit code {exitcode}"
    except ValueError:
        return f"signal {-exitcode}"


def _state(pid: int) -> str:
    """The letter of a process's state on Linux; "" if unknown."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    return ""
