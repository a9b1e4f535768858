"""Anchors and negatives from one batch of pairs, on one process or gathered from all."""

from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.arguments import Gather, require_gather, require_in_batch_negatives
from dualtemp.losses.exclusion import Exclusion
from dualtemp.losses.hardness import NO_NEGATIVES
from dualtemp.losses.ring import ring_log_sum_exp
from dualtemp.losses.similarity import Reduced, log_sum_exp
from dualtemp.losses.temperature import Temperature


class LogOdds(NamedTuple):
    """d_i of each anchor, (A, N): the anchors of q, then those of k if both directions are asked for (A = 2)."""

    alpha: Tensor  # carries the gradient
    beta: Tensor  # detached

    @property
    def counted(self) -> Tensor:
        """Whether the anchor has negatives, (A, N)."""
        return self.beta > NO_NEGATIVES / 2


class ExcludedPairs(NamedTuple):
    """Pairs of the batch that are no negatives of each other."""

    ids: tuple[Tensor, ...] = ()  # each (N,): pairs of an equal id
    padding: Tensor | None = None  # (N,) bool: neither anchors nor keys
    # (N, K) bool, K pairs of all processes: q_i has no negatives from pair j, k_j none from pair i.
    mask: Tensor | None = None

    def any(self) -> bool:
        """Whether anything may be excluded."""
        return bool(self.ids) or self.padding is not None or self.mask is not None

    def of_anchors(self, together: bool, both_directions: bool) -> tuple[Exclusion, Exclusion]:
        """The exclusions of the anchors of q and of those of k."""
        ids, padding = self.ids, self.padding
        mask_of_k = None if self.mask is None else self.mask.T
        if together:
            ids = tuple(distributed.gather(x, equal=True) for x in ids)
            padding = None if padding is None else distributed.gather(padding, equal=True)
            if self.mask is not None and both_directions:
                mask_of_k = distributed.exchange_columns(self.mask).T
        of_q = Exclusion(list(self.ids), list(ids), self.padding, padding, self.mask)
        of_k = Exclusion(list(self.ids), list(ids), self.padding, padding, mask_of_k)
        return of_q, of_k


def in_batch_log_odds(
    q: Tensor,
    k: Tensor,
    tau_alpha: Temperature,
    tau_beta: Temperature,
    *,
    both_directions: bool,
    both_views: bool,
    gather: Gather,
    excluded: ExcludedPairs | None = None,
) -> LogOdds:
    """Log-odds of the pairs of unit vectors q_i, k_i (N, D), with the batch's other images as negatives.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        tau_alpha: temperature of the part that carries the gradient; a 0-d tensor receives its own.
        tau_beta: temperature of the detached part.
        both_directions: k_i are anchors too.
        both_views: negatives from the anchor's own view as well as from the other (2N - 2 instead of N - 1).
        gather: negatives from all processes; the anchors are this process's. "ring" never holds all keys at once.
        excluded: pairs that are no negatives of each other.
    """
    require_gather(gather)
    together = gather and distributed.world_size() > 1
    require_in_batch_negatives(q.shape[0] * (distributed.world_size() if together else 1))
    if together and gather == "ring":
        if excluded is not None and excluded.any():
            raise ValueError('gather="ring" excludes no pairs: give gather=True')
        ring = ring_log_sum_exp(q, k, tau_alpha, tau_beta, both_directions=both_directions, both_views=both_views)
        return LogOdds(ring.alpha - ring.positive / tau_alpha, ring.beta - ring.positive.detach() / _detached(tau_beta))
    q_keys, k_keys, own = q, k, 0
    if together:
        own = distributed.rank() * q.shape[0]
        if both_directions or both_views:
            q_keys, k_keys = distributed.gather(torch.cat((q, k), dim=1)).chunk(2, dim=1)
        else:
            k_keys = distributed.gather(k)
    of_q = of_k = None
    if excluded is not None and excluded.any():
        of_q, of_k = excluded.of_anchors(together, both_directions)

    def reduced(anchors: Tensor, keys: Tensor, without: Exclusion | None, both: bool = False) -> Reduced:
        return log_sum_exp(anchors, keys, tau_alpha, tau_beta, own=own, both_directions=both, excluded=without)

    # On one process both directions are rows and columns of the same matrix.
    other = [reduced(q, k_keys, of_q, both_directions and not together)]
    if both_directions and together:
        other.append(reduced(k, q_keys, of_k))
    alpha, beta = _joined(other, of_q is not None)
    if both_views:
        views = [reduced(q, q_keys, of_q)] + ([reduced(k, k_keys, of_k)] if both_directions else [])
        same = _joined(views, of_q is not None)
        alpha, beta = torch.logaddexp(alpha, same[0]), torch.logaddexp(beta, same[1])
    positive = other[0].own
    return LogOdds(alpha - positive / tau_alpha, beta - positive.detach() / _detached(tau_beta))


def _detached(tau: Temperature) -> Temperature:
    return tau.detach() if isinstance(tau, Tensor) else tau


def _joined(parts: list[Reduced], excluded: bool) -> tuple[Tensor, Tensor]:
    if len(parts) == 1:
        alpha, beta = parts[0].alpha, parts[0].beta
    else:
        alpha, beta = torch.cat([part.alpha for part in parts]), torch.cat([part.beta for part in parts])
    if not excluded:
        return alpha, beta
    return alpha.masked_fill(alpha == -torch.inf, NO_NEGATIVES), beta.masked_fill(beta == -torch.inf, NO_NEGATIVES)
