"""Ctrl-C and SIGTERM, as a question that the trainer asks between steps."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dualtemp import distributed


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM has arrived; a second SIGINT interrupts at once."""
    asked = False

    def ask(number: int, _: Any) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt("stopped at once; the last checkpoint stands")
        if not asked and distributed.rank() == 0:
            with suppress(OSError):  # a log on a full disk
                # Not `print`, which may be what was interrupted.
                os.write(2, b"dualtemp: stopping after this step; once more to stop at once\n")
        asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs it there has other ways to stop it
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
