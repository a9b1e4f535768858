"""Which images are held out when a source has no test part of its own."""

import numpy as np

from dualtemp.data.subset import rank_within


def held_out(labels: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Mark a tenth of each class, those with the smallest keys: labels (N,), keys (N,) -> bool (N,).

    Of n images of a class n/10, rounded half up, are held out; at least one if n >= 2. Images added to one class
    leave every other class as it was; within a class the order of the keys stays, so that only images near the border
    can change sides.
    """
    sizes = np.bincount(labels, minlength=1)
    counts = np.where(sizes >= 2, np.maximum(1, (sizes + 5) // 10), 0)
    return rank_within(labels, keys) < counts[labels]
