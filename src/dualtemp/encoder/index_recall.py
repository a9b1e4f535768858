"""Tune an index, and measure its recall (how many of the true nearest it finds) on queries not used for tuning."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from dualtemp.encoder.stored_vectors import StoredVectors
from dualtemp.encoder.vector_index import VectorIndex

K = 10  # recall@10
QUERIES = 500  # for tuning, and as many others for measuring
ROUNDING = 1e-6  # cosines within this are equally near


class Truth(NamedTuple):
    """Query rows int64 (Q,), and the exact cosine float32 (Q,) of each with its K-th nearest other row."""

    rows: np.ndarray
    least: np.ndarray


def drawn_queries(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw query rows for tuning and others for measuring; in a small index the same rows serve both."""
    drawn = np.random.default_rng(seed).permutation(count)
    if count < 2 * K:
        return drawn, drawn
    each = min(QUERIES, count // 2)
    return np.sort(drawn[:each]), np.sort(drawn[each : 2 * each])


@torch.no_grad()
def exact_least(vectors: StoredVectors, rows: np.ndarray, k: int = K) -> np.ndarray:
    """The cosine float32 (Q,) of each row with its k-th nearest other row; reads all vectors once."""
    queries = torch.from_numpy(vectors.unit(rows))
    best = torch.full((len(rows), 0), 0.0)
    for start, z in vectors.pieces():
        s = queries @ torch.from_numpy(z).T
        here = (rows >= start) & (rows < start + len(z))
        s[np.flatnonzero(here), rows[here] - start] = -torch.inf  # a row is not its own neighbor
        best = torch.cat([best, s.topk(min(k, s.shape[1]), dim=1).values], 1)
        best = best.topk(min(k, best.shape[1]), dim=1).values
    least = best[:, -1]
    return torch.where(torch.isfinite(least), least, best[:, max(0, best.shape[1] - 2)]).numpy()


def recall(index: VectorIndex, truth: Truth, k: int = K) -> float:
    """Share of the k nearest that the index finds: rows found that are at least as near as the exact k-th.

    The index holds two vectors or more.
    """
    wanted = min(k, len(index) - 1)
    found, s = index.search(index.vectors.unit(truth.rows), wanted + 1)
    others = found != truth.rows[:, None]
    right = (others & (s >= truth.least[:, None] - ROUNDING)).sum(1)
    return float(np.minimum(right, wanted).mean() / wanted)


def tune(
    index: VectorIndex, target: float, note: Callable[[str], None] | None = None
) -> tuple[dict[str, int], dict[str, Any]]:
    """Choose the cheapest settings that reach `target` on some queries, and measure their recall@10 on others.

    Returns the settings, which are applied, and what was measured: a recall of None for a single vector, which has no
    others to find.
    """
    if len(index) < 2:
        cheapest = _choices(index)[0]
        index.apply(cheapest)
        return cheapest, {"recall@10": None, "queries": 0, "asked": target}
    first, second = drawn_queries(len(index))
    tuning = Truth(first, exact_least(index.vectors, first))
    chosen: dict[str, int] = {}
    for settings in _choices(index):
        index.apply(settings)
        chosen = settings
        if recall(index, tuning) >= target:
            break
    truth = tuning if second is first else Truth(second, exact_least(index.vectors, second))
    reached = recall(index, truth)
    if note is not None and reached < target:
        note(f"recall@10 is {reached:.3f}, below the {target:g} asked for: no settings of this kind of index reach it")
    return chosen, {"recall@10": round(reached, 4), "queries": len(truth.rows), "asked": target}


def _choices(index: VectorIndex) -> list[dict[str, int]]:
    """Settings of a search, the cheapest first."""
    if index.kind == "exact":
        return [{"candidates": 1}]
    if index.kind == "hnsw":
        return [{"candidates": 20, "ef": ef} for ef in (16, 32, 64, 128, 256, 512)]
    cells = index.found.nlist
    probes = [p for p in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if p < cells] + [cells]
    return [{"candidates": 100, "probes": p} for p in probes[:8]] + [
        {"candidates": 400, "probes": p} for p in probes[4:]
    ]
