"""Entropy (fig:entropy) and similarity (fig:abg_similarity) of r_+, by dictionary size and temperature."""

from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.errors import UserError
from dualtemp.losses.hardness import entropy, log_odds_of_embeddings, penalty_similarity, relative_penalty

BATCHES = 16
Curves = dict[str, dict[str, float | None]]  # by tau, by size; None where the dictionary has not so many keys


class Measured(NamedTuple):
    """Curves, and what they are of: anchors in a batch, keys that there are."""

    values: Curves
    anchors: int
    keys: int


def penalty_entropy(run: TrainedRun, taus: list[float], sizes: list[int]) -> Curves:
    """Entropy of r_+ over a batch, in nats, against the newest keys; the mean of some batches."""
    return measured_entropy(run, taus, sizes).values


def redrawn_similarity(run: TrainedRun, taus: list[float], sizes: list[int]) -> Curves:
    """Cosine similarity of two r_+ of the same anchors with other positives and other negatives; mean of batches."""
    return measured_similarity(run, taus, sizes).values


def measured_entropy(run: TrainedRun, taus: list[float], sizes: list[int]) -> Measured:
    """`penalty_entropy` with what it is of."""
    keys, anchors = run.dictionary(max(sizes)), embedded(run)

    def value(tau: float, size: int) -> float | None:
        if size > len(keys):
            return None
        newest = keys[len(keys) - size :]
        return fmean(entropy(_penalty(q, k_pos, newest, tau)).item() for q, k_pos, _ in anchors)

    return Measured(_curves(value, taus, sizes), len(anchors[0][0]), len(keys))


def measured_similarity(run: TrainedRun, taus: list[float], sizes: list[int]) -> Measured:
    """`redrawn_similarity` with what it is of."""
    keys, anchors = run.dictionary(2 * max(sizes)), embedded(run)
    drawn = torch.randperm(len(keys), generator=torch.Generator().manual_seed(run.chosen.seed)).to(keys.device)

    def value(tau: float, size: int) -> float | None:
        if 2 * size > len(keys):
            return None
        one, other = keys[drawn[:size]], keys[drawn[size : 2 * size]]  # no key is in both
        return fmean(
            penalty_similarity(_penalty(q, k_pos, one, tau), _penalty(q, k_redrawn, other, tau)).item()
            for q, k_pos, k_redrawn in anchors
        )

    return Measured(_curves(value, taus, sizes), len(anchors[0][0]), len(keys))


def embedded(run: TrainedRun) -> list[tuple[Tensor, Tensor, Tensor]]:
    """q, k_pos and k_redrawn, each (N, D), of some batches of anchors; their views, which may be large, are let go."""
    found = [(batch.q, batch.k_pos, batch.k_redrawn) for batch in run.anchors(BATCHES)]
    if not found:
        raise UserError(f"{run.data.images.name}: its images cannot be read; see `dualtemp data` on it")
    return found


def _penalty(q: Tensor, k_pos: Tensor, negatives: Tensor, tau: float) -> Tensor:
    """r_+ in float64 on the CPU: with many keys W is 1 to within float32's digits, and entropies differ there."""
    return relative_penalty(log_odds_of_embeddings(q, k_pos, negatives, tau).cpu().double())


def _curves(value: Any, taus: list[float], sizes: list[int]) -> Curves:
    return {f"{tau:g}": {str(size): value(tau, size) for size in sizes} for tau in taus}
