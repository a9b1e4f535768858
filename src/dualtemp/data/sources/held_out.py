"""Choose the images to hold out if a source has no test part, or if its test part must not be used yet."""

import numpy as np

from dualtemp.data.subset import rank_within


def held_out(labels: np.ndarray, keys: np.ndarray, copy_of: np.ndarray | None = None) -> np.ndarray:
    """Mark a tenth of each class, those with the smallest keys: labels (N,), keys (N,) -> bool (N,).

    Of n images of a class n/10, rounded half up, are held out; at least one if n >= 2. Adding images to one class does
    not affect the others; within a class, only images whose keys are near the border can change sides.

    copy_of (N,): for each image, the first one with the same content. Copies then stay together, by the key of the
    first: all are held out if the tenth has room for them.
    """
    sizes = np.bincount(labels, minlength=1)
    counts = np.where(sizes >= 2, np.maximum(1, (sizes + 5) // 10), 0)
    if copy_of is None or (copy_of == np.arange(len(labels))).all():
        return rank_within(labels, keys) < counts[labels]
    return _whole_groups(labels, keys, copy_of, sizes, counts)


def _whole_groups(
    labels: np.ndarray, keys: np.ndarray, copy_of: np.ndarray, sizes: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    order = np.lexsort((np.arange(len(labels)), copy_of, keys[copy_of]))
    groups = np.split(order, np.flatnonzero(np.diff(copy_of[order])) + 1)
    test, room = np.zeros(len(labels), bool), counts.copy()
    for group in groups:
        needed = np.bincount(labels[group], minlength=len(room))
        if (needed <= room).all():
            test[group] = True
            room -= needed
    for group in sorted(groups, key=len):  # if no group of a class fits, hold out its smallest one
        lacking = (room == counts) & (counts > 0)
        needed = np.bincount(labels[group], minlength=len(room))
        if lacking[labels[group]].any() and (needed + counts - room < sizes)[labels[group]].all():
            test[group] = True
            room -= needed
    return test
