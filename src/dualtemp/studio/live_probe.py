"""The probe in a thread of its own, refitted whenever labels or features have changed."""

import threading
from collections.abc import Callable
from typing import Any

from dualtemp.studio.background import PATIENCE
from dualtemp.studio.predictions import Predictions


class LiveProbe:
    """Holds the newest predictions.

    Args:
        fit: fits to the present labels; returns None if that is not possible yet.
        tell: called after each fit.
    """

    def __init__(self, fit: Callable[[], Predictions | None], tell: Callable[[], None]) -> None:
        self._fit, self._tell = fit, tell
        self._newest: tuple[int, Predictions | None] = (0, None)  # one tuple, so that threads read a consistent pair
        self._asked = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="studio-probe", daemon=True)

    @property
    def predictions(self) -> Predictions | None:
        """The predictions of the newest fit."""
        return self._newest[1]

    @property
    def version(self) -> int:
        """Number of fits so far."""
        return self._newest[0]

    def start(self) -> None:
        """Start the thread, which waits for `ask`."""
        self._thread.start()

    def ask(self) -> None:
        """Request a new fit; all requests during a fit together cause one more."""
        self._asked.set()

    def close(self) -> None:
        """End the thread after the present fit: Python must not exit while torch computes."""
        self._closing = True
        self._asked.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)

    def described(self) -> dict[str, Any]:
        """A description for the pages."""
        version, found = self._newest
        about = {} if found is None else {"labeled": found.labeled, "classes": len(found.classes)}
        return {"version": version, "seconds": None if found is None else round(found.seconds, 4), **about}

    def _work(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._closing:
                return
            self._newest = self._newest[0] + 1, self._fit()
            self._tell()
