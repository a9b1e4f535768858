"""Log-odds at temperatures that are tensors: one per anchor, or one that depends on the batch.

Similarities at a temperature tau are those of shorter vectors at a lower one: s / tau = (floor / tau) s / floor. So the
product at `floor`, a plain number no higher than any tau, serves all of them, and the host never waits for the value of
a tau.
"""

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.arguments import Gather, require_in_batch_negatives
from dualtemp.losses.odds import Odds, OwnTemperatures
from dualtemp.losses.similarity import log_sum_exp


def log_odds_at(
    q: Tensor, k: Tensor, own: OwnTemperatures, *, both_directions: bool, both_views: bool, gather: Gather
) -> Odds:
    """Log-odds of the pairs of unit vectors q_i, k_i (N, D), each anchor at its own temperature.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        own: temperatures of the anchors, (1, N), or (2, N) with both directions.
        both_directions: k_i are anchors too.
        both_views: negatives from the anchor's own view as well as from the other.
        gather: negatives from all processes; the anchors are this process's.
    """
    together = gather and distributed.world_size() > 1
    require_in_batch_negatives(q.shape[0] * (distributed.world_size() if together else 1))
    keys, first = (q, k), 0
    if together:
        first = distributed.rank() * q.shape[0]
        keys = distributed.gather(torch.cat((q, k), dim=1)).chunk(2, dim=1)
    shares = own.floor / own.tau.to(q.dtype)
    of_directions = [
        _log_odds((q, k)[i] * shares[i, :, None], keys[1 - i], keys[i] if both_views else None, own.floor, first)
        for i in range(1 + both_directions)
    ]
    d, slope = (torch.stack(parts) for parts in zip(*of_directions, strict=True))
    return Odds(d, tau=own.tau, slope=slope)


def _log_odds(anchors: Tensor, others: Tensor, same: Tensor | None, floor: float, first: int) -> tuple[Tensor, Tensor]:
    """d and its slope, (N,), of anchors (N, D) against the other view's keys and, if given, those of their own view."""
    other = log_sum_exp(anchors, others, floor, own=first, vector=True)
    lse, mean = other.alpha[0], other.vector
    if same is not None:
        more = log_sum_exp(anchors, same, floor, own=first, vector=True)
        lse = torch.logaddexp(lse, more.alpha[0])
        shares = (torch.exp(part.alpha[0].detach() - lse.detach())[:, None] for part in (other, more))
        mean = sum(part.vector * share for part, share in zip((other, more), shares, strict=True))
    slope = ((anchors.detach() * mean).sum(-1) - other.own.detach()) / floor
    return lse - other.own / floor, slope
