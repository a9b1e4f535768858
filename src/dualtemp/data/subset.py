"""Choose the images of a subset: balanced over the classes, seeded, nested, and the same on every machine."""

import numpy as np
from torch import Tensor

from dualtemp.errors import UserError

# The purpose of a key, so that uses with the same seed are independent.
SUBSET, HELD_OUT, NOISE_WHICH, NOISE_WHERE, VALIDATION, FOLDS, BANK = range(7)


def random_keys(seed: int, use: int, count: int) -> np.ndarray:
    """`count` uint64 keys; key i depends on (seed, use, i) alone.

    Keys are the raw words of Philox-4x64 (Salmon et al. 2011), an algorithm fixed by its publication. No library's
    shuffling is involved, so keys are the same on every machine and with every version.
    """
    return np.random.Philox(key=np.array([seed % 2**64, use], dtype=np.uint64)).random_raw(count)


def rank_within(groups: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Rank of each element within its group, in the order of the keys: (N,), (N,) -> int64 (N,)."""
    order = np.lexsort((np.arange(len(groups)), keys, groups))
    grouped = groups[order]
    starts = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]]) if len(groups) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(groups)])
    ranks = np.empty(len(groups), dtype=np.int64)
    ranks[order] = np.arange(len(groups)) - np.repeat(starts, sizes)
    return ranks


def subset_count(amount: int | float, total: int) -> int:
    """How many images `amount` means: an int is a count, a float a fraction in (0, 1]."""
    if isinstance(amount, float):
        if not 0 < amount <= 1:
            raise UserError(f"subset {amount}: a fraction must be in (0, 1]; for a count give a whole number")
        return max(1, round(amount * total))
    if not 1 <= amount <= total:
        raise UserError(f"subset {amount}: the set has {total} images; give a count from 1 to {total} or a fraction")
    return amount


def subset_index(labels: Tensor | None, total: int, amount: int | float, seed: int) -> np.ndarray:
    """Choose images: ascending int64 indices.

    With labels, the classes take turns (in a seeded order per round), so that counts differ by at most one until a
    class runs dry. Without labels, or when some image has none (label -1), every image is equally likely.
    With one seed a larger subset contains every smaller one.
    """
    count = subset_count(amount, total)
    keys = random_keys(seed, SUBSET, total)
    if labels is None or bool((labels < 0).any()):
        order = np.lexsort((np.arange(total), keys))
    else:
        # Round r takes the r-th image of every class; within a round the image's own key decides whose turn it is.
        order = np.lexsort((np.arange(total), keys, rank_within(labels.cpu().numpy(), keys)))
    return np.sort(order[:count])
