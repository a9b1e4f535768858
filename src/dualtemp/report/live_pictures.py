"""Pictures of a run while it trains, in at most a small share of its time."""

import time

from dualtemp.analysis.pictures import ANCHORS, IMAGES, collect_pictures, write_pictures
from dualtemp.analysis.trained_run import open_snapshot
from dualtemp.training.observers.observer import Snapshot

SHARE = 0.02  # of the time since the run was started or resumed
SIZES = (IMAGES, IMAGES // 2, IMAGES // 4, IMAGES // 8)  # images on the map: smaller maps come sooner
MAP_SECONDS = 3.0  # for the full map on one slow core; the time grows with the square of the number of points


class LivePictures:
    """Takes pictures of snapshots as often as the share of time allows.

    Their time is estimated from the speed of training, and corrected by the time that the last pictures took. The first
    ones show few images and come soon; each of the next waits until it can show twice as many, up to IMAGES.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.spent = 0.0
        self.images = 0
        self._correction = 1.0

    def take(self, now: Snapshot, images_per_second: float) -> bool:
        """Write RUN/pictures.json if there is time for it; return whether it was written."""
        left = SHARE * (time.monotonic() - self.began) - self.spent
        costs = {
            size: self.estimate(size, now, images_per_second) for size in SIZES if size > min(self.images, IMAGES - 1)
        }
        size = max((size for size, cost in costs.items() if cost * self._correction <= left), default=0)
        if not size:
            return False
        began = time.monotonic()
        write_pictures(now.path, collect_pictures(open_snapshot(now), size))
        took = time.monotonic() - began
        self.spent, self.images, self._correction = self.spent + took, size, took / costs[size]
        return True

    @staticmethod
    def estimate(size: int, now: Snapshot, images_per_second: float) -> float:
        """Estimate the seconds for pictures of `size` images: each is encoded clean and in two views, anchors in three.

        This is an upper bound: a forward pass takes less time than an image in a training step.
        """
        views = 3 * size + 3 * min(ANCHORS, now.chosen.batch)
        return views / max(images_per_second, 1e-9) + MAP_SECONDS * (size / IMAGES) ** 2
