"""Entropy (fig:entropy) and similarity (fig:abg_similarity) of r_+, by dictionary size and temperature."""

from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.errors import UserError
from dualtemp.losses.hardness import entropy, log_odds_of_embeddings, penalty_similarity, relative_penalty

BATCHES = 16
Curves = dict[str, dict[str, float | None]]  # by tau, by size; None if the dictionary is smaller


class Measured(NamedTuple):
    """Curves with the number of anchors per batch and the number of keys available."""

    values: Curves
    anchors: int
    keys: int


def penalty_entropy(run: TrainedRun, taus: list[float], sizes: list[int]) -> Curves:
    """Compute the entropy of r_+ in nats against the newest keys, averaged over batches."""
    return measure_entropy(run, taus, sizes).values


def redrawn_similarity(run: TrainedRun, taus: list[float], sizes: list[int]) -> Curves:
    """Compute the cosine similarity of r_+ of the same anchors with two sets of positives and negatives."""
    return measure_similarity(run, taus, sizes).values


def measure_entropy(run: TrainedRun, taus: list[float], sizes: list[int]) -> Measured:
    """Like `penalty_entropy`, with the numbers of anchors and keys."""
    keys, anchors = run.dictionary(max(sizes)), embed_anchors(run)

    def value(tau: float, size: int) -> float | None:
        if size > len(keys):
            return None
        newest = keys[len(keys) - size :]
        return fmean(entropy(_penalty(q, k_pos, newest, tau)).item() for q, k_pos, _ in anchors)

    return Measured(_curves(value, taus, sizes), len(anchors[0][0]), len(keys))


def measure_similarity(run: TrainedRun, taus: list[float], sizes: list[int]) -> Measured:
    """Like `redrawn_similarity`, with the numbers of anchors and keys."""
    keys, anchors = run.dictionary(2 * max(sizes)), embed_anchors(run)
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


def embed_anchors(run: TrainedRun) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return q, k_pos and k_redrawn, each (N, D), for several batches of anchors, without their (large) views."""
    found = [(batch.q, batch.k_pos, batch.k_redrawn) for batch in run.anchors(BATCHES)]
    if not found:
        raise UserError(f"{run.data.images.name}: its images cannot be read; check it with `dualtemp data`")
    return found


def _penalty(q: Tensor, k_pos: Tensor, negatives: Tensor, tau: float) -> Tensor:
    """Compute r_+ in float64: with many keys W equals 1 up to float32 rounding, and entropies differ beyond that."""
    return relative_penalty(log_odds_of_embeddings(q, k_pos, negatives, tau).cpu().double())


def _curves(value: Any, taus: list[float], sizes: list[int]) -> Curves:
    return {f"{tau:g}": {str(size): value(tau, size) for size in sizes} for tau in taus}
