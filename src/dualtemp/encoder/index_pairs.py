"""Find near-duplicates with an index: the neighbors of each image are candidates, which are compared exactly.

Work grows with N times the cost of a search (about sqrt(N) for ivfpq), not with N squared. To measure what is missed, a
sample of images is compared with all others: the recall is the share of its pairs that were found.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from dualtemp.encoder.vector_index import VectorIndex

NEIGHBORS = 16  # fewest to ask for each image at first; more are asked for where most are pairs
MOST_NEIGHBORS = 4096
BLOCK = 1 << 23  # numbers that an exact comparison holds at once
SAMPLE = 500  # images whose pairs are all compared, for the recall
ROUNDING = 1e-6


class IndexPairs(NamedTuple):
    """Pairs int64 (P, 2), each i < j, their cosines float32 (P,), both as `similar_pairs` orders them.

    cut: whether there were more; recall: share of the true pairs of sampled images that were found, None if these have
    no pair, or if pairs were cut; sampled: number of true pairs that the recall is measured on.
    """

    pairs: np.ndarray
    s: np.ndarray
    cut: bool
    recall: float | None
    sampled: int


def index_pairs(
    index: VectorIndex, threshold: float, most: int | None = None, progress: Callable[[int, int], None] | None = None
) -> IndexPairs:
    """Find pairs with a cosine of at least `threshold` among all rows of an index; at most `most`, the most similar."""
    count, least = len(index), threshold - ROUNDING
    most = max(100_000, 10 * count) if most is None else most
    keys, values, held, cut = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)], 0, False
    waiting, k = np.arange(count), max(NEIGHBORS, index.settings["candidates"])
    first = k
    while len(waiting):  # first all images, then those that may have more pairs than neighbors were asked for
        again = []
        step = max(1, BLOCK // (min(k, count) * index.vectors.width))
        for start in range(0, len(waiting), step):
            rows = waiting[start : start + step]
            key, s, more = neighbor_pairs(index, rows, k, least)
            keys.append(key)
            values.append(s)
            again.append(more)
            held += len(key)
            if held > 4 * most:
                keys, values, least, was_cut = _kept(keys, values, most, least)
                held, cut = len(keys[0]), cut or was_cut
            if progress is not None and k == first:
                progress(start + len(rows), count)
        waiting, k = np.concatenate(again) if k < min(MOST_NEIGHBORS, count) else waiting[:0], 4 * k
    keys, values, _, was_cut = _kept(keys, values, most, least)
    pairs = np.stack(np.divmod(keys[0], count), 1)
    found, sampled = (None, 0) if cut or was_cut else _recall(index, pairs, threshold)
    return IndexPairs(pairs, values[0], cut or was_cut, found, sampled)


def neighbor_pairs(
    index: VectorIndex, rows: np.ndarray, k: int, least: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of these rows as keys i N + j (i < j), their cosines, and the rows that may have more pairs than k show.

    A row may have more if all its k neighbors are pairs; with ivfpq, whose codes order neighbors only roughly, if a
    quarter of them are.
    """
    z = index.vectors.unit(rows)
    found = index.candidates(z, k + 1)
    at, place, s = index.near(z, np.where(found == rows[:, None], -1, found), least)
    one, other = rows[at], found[at, place]
    key = np.minimum(one, other) * len(index) + np.maximum(one, other)
    enough = k // 4 if index.kind == "ivfpq" else k
    pairs = np.bincount(at, minlength=len(rows))
    return key, s, rows[(pairs >= enough) & (k + 1 < len(index))]


def _kept(
    keys: list[np.ndarray], values: list[np.ndarray], most: int, least: float
) -> tuple[list[np.ndarray], list[np.ndarray], float, bool]:
    """Keep each pair once, the `most` most similar first; also returns the least cosine to keep from now on."""
    key, first = np.unique(np.concatenate(keys), return_index=True)
    s = np.concatenate(values)[first]
    order = np.lexsort((key, -s))
    cut = len(order) > most
    order = order[:most]
    return [key[order]], [s[order]], float(s[order[-1]]) if cut else least, cut


@torch.no_grad()
def _recall(index: VectorIndex, pairs: np.ndarray, threshold: float) -> tuple[float | None, int]:
    """Measure the recall of `pairs` by comparing a sample of images exactly with all others."""
    count = len(index)
    asked = np.sort(np.random.default_rng(0).permutation(count)[:SAMPLE])
    queries = torch.from_numpy(index.vectors.unit(asked))
    known = np.sort(pairs[:, 0] * count + pairs[:, 1])
    true = [np.zeros(0, np.int64)]
    for start, z in index.vectors.pieces():
        at, other = (queries @ torch.from_numpy(z).T >= threshold).nonzero().numpy().T
        one, other = asked[at], other + start
        here = one != other
        true.append((np.minimum(one, other) * count + np.maximum(one, other))[here])
    wanted = np.unique(np.concatenate(true))
    if not len(wanted):
        return None, 0
    return float(np.isin(wanted, known).mean()), len(wanted)
