"""Pictures of a run while it goes on, in at most a small share of its time."""

import time

from dualtemp.analysis.pictures import ANCHORS, IMAGES, pictures, write_pictures
from dualtemp.analysis.trained_run import running_run
from dualtemp.training.observers.observer import Snapshot

SHARE = 0.02  # of the time since the run was begun or resumed
SIZES = (IMAGES, IMAGES // 2, IMAGES // 4, IMAGES // 8)  # images on the map: fewer come sooner
MAP_SECONDS = 3.0  # of the whole map on one slow core: a neighbour embedding grows with the square of its points


class LivePictures:
    """Takes pictures of snapshots as often as the share of time allows.

    What they will take is estimated from the speed of training, and then corrected by what the last ones took. The
    first are of few images and come soon; the next wait until they can be of twice as many, up to the whole number.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.spent = 0.0
        self.images = 0
        self._correction = 1.0

    def take(self, now: Snapshot, images_per_second: float) -> bool:
        """Write RUN/pictures.json if there is time for it; whether it was."""
        left = SHARE * (time.monotonic() - self.began) - self.spent
        costs = {
            size: self.estimate(size, now, images_per_second) for size in SIZES if size > min(self.images, IMAGES - 1)
        }
        size = max((size for size, cost in costs.items() if cost * self._correction <= left), default=0)
        if not size:
            return False
        began = time.monotonic()
        write_pictures(now.path, pictures(running_run(now), size))
        took = time.monotonic() - began
        self.spent, self.images, self._correction = self.spent + took, size, took / costs[size]
        return True

    @staticmethod
    def estimate(size: int, now: Snapshot, images_per_second: float) -> float:
        """Seconds of pictures of so many images: each is seen clean and in two views, an anchor in three.

        A view that is only looked at takes less time than an image in a training step.
        """
        views = 3 * size + 3 * min(ANCHORS, now.chosen.batch)
        return views / max(images_per_second, 1e-9) + MAP_SECONDS * (size / IMAGES) ** 2
