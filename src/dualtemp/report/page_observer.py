"""An observer that writes the run page at the start, after every epoch and at the end, with pictures now and then."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dualtemp.analysis.pictures import take_pictures
from dualtemp.config import Settings
from dualtemp.report.live_pictures import LivePictures
from dualtemp.report.run_page import write_run_page
from dualtemp.training.observers.observer import Snapshot, attempt


class RunPage:
    """Keeps report.html of a run up to date.

    path: the run's folder; None until the run has begun, and always None on ranks other than 0.

    Args:
        note: called with the reason if pictures fail.
    """

    def __init__(self, note: Callable[[str], None] = lambda text: None) -> None:
        self.path: Path | None = None
        self._note, self._speed = note, 0.0  # images a second
        self._pictures: LivePictures | None = None  # None once they have failed

    def __str__(self) -> str:
        """Return the name used in notes."""
        return "the run's page"

    def begin(self, path: Path, settings: Settings) -> None:
        """Write the page of a run that has just begun."""
        self.path, self._pictures = path, LivePictures()
        self.write()

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Do nothing: the page does not show steps."""

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Write the page again."""
        self._speed = float(metrics.get("images_per_second") or 0.0)
        self.write()

    def snapshot(self, snapshot: Snapshot) -> None:
        """Take pictures of what the run has learned so far, if there is time for them."""
        pictures, taken = self._pictures, []
        if pictures is None:
            return
        if not attempt("pictures for the page", lambda: taken.append(pictures.take(snapshot, self._speed)), self._note):
            self._pictures = None
        elif any(taken):
            self.write()

    def note(self, text: str) -> None:
        """Do nothing: the page does not show notes."""

    def close(self) -> None:
        """Do nothing: the page would say "running" as long as the run's folder is locked."""

    def write(self) -> None:
        """Write the page from the files in the folder."""
        assert self.path is not None
        write_run_page(self.path)

    def take_pictures(self, device: str, progress: Callable[[int, int], None]) -> None:
        """Take the pictures of a finished run, and put them on the page."""
        assert self.path is not None
        try:
            take_pictures(self.path, device, progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"{self.path} is finished, but its page has no pictures: `dualtemp report {self.path}` takes them"
            ) from None
        self.write()
