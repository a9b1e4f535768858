"""The hardness-aware option of tab:othermethod for losses that have no negatives."""

from torch import Tensor

from dualtemp.losses import in_batch_weight, negative_cosine


def weighted_cosine(
    p: Tensor, k: Tensor, hardness_aware: bool, tau: float, stats: dict[str, Tensor] | None = None
) -> Tensor:
    """Mean of -w_i p_i . k_i over this process's anchors; w_i is W_i(tau) against the batch's keys, or 1.

    p: predictions, (N, D); k: detached target keys, (N, D). `stats` receives W_i(tau), used or not, as "W".
    """
    return negative_cosine(p, k, _weight(p, k, hardness_aware, tau, stats))


def weighted_distance(
    p: Tensor, k: Tensor, hardness_aware: bool, tau: float, stats: dict[str, Tensor] | None = None
) -> Tensor:
    """Mean of w_i (2 - 2 p_i . k_i), the squared distance of the unit vectors; otherwise like `weighted_cosine`."""
    weight = _weight(p, k, hardness_aware, tau, stats)
    return 2 * ((1.0 if weight is None else weight.mean()) + negative_cosine(p, k, weight))


def _weight(p: Tensor, k: Tensor, hardness_aware: bool, tau: float, stats: dict[str, Tensor] | None) -> Tensor | None:
    weight = in_batch_weight(p, k, tau, gather=True) if hardness_aware or stats is not None else None
    if stats is not None and weight is not None:
        stats["W"] = weight
    return weight if hardness_aware else None
