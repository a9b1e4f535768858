"""How a smaller dictionary affects the scalar and the vector: why one of them needs many keys."""

import math
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.analysis.penalty import embed_anchors
from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.losses.hardness import inter_anchor_weight, log_odds_of_embeddings, penalty_similarity, relative_penalty
from dualtemp.losses.similarity import log_sum_exp, unit

DEFAULT_SIZES = tuple(4**power for power in range(2, 9))  # 16 .. 65,536
FEW_SIZES = (2, 4, 8, 16, 32)  # if there are fewer than 64 keys
DEFAULT_MADE = 4_096  # keys to encode unless the user asks for more


class Components(NamedTuple):
    """Scalar and vector of a batch's anchors against some keys, in float64 on the CPU."""

    log_odds: Tensor  # (N,): W = sigmoid(log_odds) is the scalar
    vector: Tensor  # (N, D): sum_j p^_ij k_j
    effective: Tensor  # (N,): exp of the entropy of p^, the effective number of negatives in the vector


def default_sizes(run: TrainedRun, share: int = 1) -> list[int]:
    """Choose dictionary sizes: powers of four from 16, or powers of two from 2 if there are fewer than 64 keys.

    The largest is at most the number of keys divided by `share`, and at most 4,096 if keys must be encoded first.
    """
    most = (run.max_keys if run.has_own_keys else min(run.max_keys, DEFAULT_MADE)) // share
    return [size for size in (DEFAULT_SIZES if most >= 64 else FEW_SIZES) if size <= most] or [max(1, most)]


def compare_dictionary_sizes(run: TrainedRun, taus: list[float], sizes: list[int]) -> dict[str, Any]:
    """Compare scalar and vector computed from the newest keys with those from all keys; means over anchors.

    "All keys" are MoCo's dictionary, or for other frameworks as many keys as the largest size. Returns the numbers of
    anchors and keys and, under "values", for every tau and size:

        W, W_spread           mean and standard deviation of W over a batch
        scalar_correlation    Pearson correlation of log W with log W from all keys; None if W does not vary
        scalar_similarity     cosine of r_+ with r_+ from all keys
        vector_similarity     cosine of sum_j p^_ij k_j with that from all keys
        effective_negatives   exp of the entropy of p^

    or None for a size larger than the dictionary.
    """
    keys, anchors = run.dictionary(max(sizes)), embed_anchors(run)
    values: dict[str, dict[str, Any]] = {}
    for tau in taus:
        whole = [components(q, k_pos, keys, tau) for q, k_pos, _ in anchors]
        values[f"{tau:g}"] = {
            str(size): _means(
                [
                    _compared(components(q, k_pos, keys[len(keys) - size :], tau), all_keys)
                    for (q, k_pos, _), all_keys in zip(anchors, whole, strict=True)
                ]
            )
            if size <= len(keys)
            else None
            for size in sizes
        }
    return {"anchors": len(anchors[0][0]), "keys": len(keys), "values": values}


@torch.no_grad()
def components(q: Tensor, k_pos: Tensor, keys: Tensor, tau: float) -> Components:
    """Compute scalar and vector of anchors q (N, D) with positives k_pos (N, D) against keys (K, D).

    The (N, K) matrix is never formed.
    """
    anchors, negatives = unit(q, keys)
    found = log_sum_exp(anchors, negatives, tau, vector=True)
    # At an infinite tau all keys count equally, and the reduction returns no vector.
    vector = found.vector if math.isfinite(tau) else negatives.mean(0).expand_as(anchors)
    # Entropy of p^ = log sum_j e^(s_ij / tau) - sum_j p^_ij s_ij / tau, and the last sum is q_i . vector_i.
    mean_similarity = (anchors * vector).sum(1)
    effective = (found.alpha[0].cpu().double() - mean_similarity.cpu().double() / tau).exp()
    log_odds = log_odds_of_embeddings(q, k_pos, keys, tau)
    return Components(log_odds.cpu().double(), vector.cpu().double(), effective)


def _compared(some: Components, whole: Components) -> dict[str, float | None]:
    W = inter_anchor_weight(some.log_odds)
    return {
        "W": W.mean().item(),
        "W_spread": W.std(correction=0).item(),
        "scalar_correlation": _correlation(F.logsigmoid(some.log_odds), F.logsigmoid(whole.log_odds)),
        "scalar_similarity": penalty_similarity(
            relative_penalty(some.log_odds), relative_penalty(whole.log_odds)
        ).item(),
        "vector_similarity": F.cosine_similarity(some.vector, whole.vector, dim=1).mean().item(),
        "effective_negatives": some.effective.mean().item(),
    }


def _correlation(one: Tensor, other: Tensor) -> float | None:
    if min(one.std(correction=0), other.std(correction=0)) < 1e-12:
        return None
    return torch.corrcoef(torch.stack([one, other]))[0, 1].item()


def _means(batches: list[dict[str, float | None]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in batches[0]:
        known = [value for batch in batches if (value := batch[name]) is not None]
        found[name] = fmean(known) if known else None
    return found
