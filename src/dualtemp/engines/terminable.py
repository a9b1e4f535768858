"""SIGTERM as Ctrl-C, for what starts tasks and for tasks of a cluster: whatever is open is closed, and saved."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
