"""Which images are held out when a source has no test part of its own, or when that part is not to be looked at."""

import numpy as np

from dualtemp.data.subset import rank_within


def held_out(labels: np.ndarray, keys: np.ndarray, copy_of: np.ndarray | None = None) -> np.ndarray:
    """Mark a tenth of each class, those with the smallest keys: labels (N,), keys (N,) -> bool (N,).

    Of n images of a class n/10, rounded half up, are held out; at least one if n >= 2. Images added to one class
    leave every other class as it was; within a class the order of the keys stays, so that only images near the border
    can change sides.

    copy_of (N,): for each image the first one of the same content. All of them then go to one side, by the key of the
    first: held out together if the tenth has room for them.
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
    for group in sorted(groups, key=len):  # a class of which no group was small enough gives its smallest
        lacking = (room == counts) & (counts > 0)
        needed = np.bincount(labels[group], minlength=len(room))
        if lacking[labels[group]].any() and (needed + counts - room < sizes)[labels[group]].all():
            test[group] = True
            room -= needed
    return test
