"""Anchors and negatives from one batch of pairs, on one process or gathered from all."""

from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.arguments import Gather, require_gather, require_in_batch_negatives
from dualtemp.losses.ring import ring_log_sum_exp
from dualtemp.losses.similarity import Reduced, log_sum_exp


class LogOdds(NamedTuple):
    """d_i of each anchor, (A, N): the anchors of q, then those of k if both directions are asked for (A = 2)."""

    alpha: Tensor  # carries the gradient
    beta: Tensor  # detached


def in_batch_log_odds(
    q: Tensor,
    k: Tensor,
    tau_alpha: float,
    tau_beta: float,
    *,
    both_directions: bool,
    both_views: bool,
    gather: Gather,
) -> LogOdds:
    """Log-odds of the pairs of unit vectors q_i, k_i (N, D), with the batch's other images as negatives.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        tau_alpha: temperature of the part that carries the gradient.
        tau_beta: temperature of the detached part.
        both_directions: k_i are anchors too.
        both_views: negatives from the anchor's own view as well as from the other (2N - 2 instead of N - 1).
        gather: negatives from all processes; the anchors are this process's. "ring" never holds all keys at once.
    """
    require_gather(gather)
    together = gather and distributed.world_size() > 1
    require_in_batch_negatives(len(q) * (distributed.world_size() if together else 1))
    if together and gather == "ring":
        ring = ring_log_sum_exp(q, k, tau_alpha, tau_beta, both_directions=both_directions, both_views=both_views)
        return LogOdds(ring.alpha - ring.positive / tau_alpha, ring.beta - ring.positive.detach() / tau_beta)
    q_keys, k_keys, own = q, k, 0
    if together:
        own = distributed.rank() * len(q)
        if both_directions or both_views:
            q_keys, k_keys = distributed.gather(torch.cat((q, k), dim=1)).chunk(2, dim=1)
        else:
            k_keys = distributed.gather(k)

    def reduced(anchors: Tensor, keys: Tensor, both: bool = False) -> Reduced:
        return log_sum_exp(anchors, keys, tau_alpha, tau_beta, own=own, both_directions=both)

    # On one process both directions are rows and columns of the same matrix.
    other = [reduced(q, k_keys, both_directions and not together)]
    if both_directions and together:
        other.append(reduced(k, q_keys))
    alpha, beta = _joined(other)
    if both_views:
        same = _joined([reduced(q, q_keys)] + ([reduced(k, k_keys)] if both_directions else []))
        alpha, beta = torch.logaddexp(alpha, same[0]), torch.logaddexp(beta, same[1])
    positive = other[0].own
    return LogOdds(alpha - positive / tau_alpha, beta - positive.detach() / tau_beta)


def _joined(parts: list[Reduced]) -> tuple[Tensor, Tensor]:
    if len(parts) == 1:
        return parts[0].alpha, parts[0].beta
    return torch.cat([part.alpha for part in parts]), torch.cat([part.beta for part in parts])
