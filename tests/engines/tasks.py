"""Tasks for the tests of engines; processes that are started import them from here."""

import os
import signal
import time
from pathlib import Path

from dualtemp.engines.engine import Place


def tell_place(place: Place, x: int) -> tuple[str, int, int, int]:
    return place.device, place.threads, os.getpid(), x


def wait_forever(place: Place, sign: Path) -> None:
    sign.write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)


def save_when_stopped(place: Place, sign: Path) -> None:
    """As a run in training does: SIGTERM is a request to save, and then it is interrupted."""

    def save(*_: object) -> None:
        sign.with_suffix(".saved").touch()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, save)
    wait_forever(place, sign)


def fail(place: Place, error: BaseException) -> None:
    raise error
