"""Pairs of two encoders, such as image and text: both directions, a temperature that learns, pairs left out."""

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.arguments import Reduction, require_in_batch_negatives, require_pairs, require_temperatures
from dualtemp.losses.in_batch import ExcludedPairs, in_batch_log_odds
from dualtemp.losses.odds import Odds
from dualtemp.losses.scalar_times_vector import Stats, record, reduced, scalar_times_vector
from dualtemp.losses.similarity import unit
from dualtemp.losses.small_batch import small_batch_loss
from dualtemp.losses.temperature import Temperature, require_temperature
from dualtemp.losses.unit_vectors import require_no_transform
from dualtemp.losses.weighted_mean import require_pair_weight, require_vector, weighted_mean
from dualtemp.losses.weights import FORMULAS, tau_beta_of

TAU_TWO_TOWERS = 0.07  # where CLIP starts


def two_towers(
    a: Tensor,
    b: Tensor,
    tau: Temperature = TAU_TWO_TOWERS,
    tau_beta: float | None = None,
    *,
    weight: str = "sigmoid",
    ids: Tensor | None = None,
    labels: Tensor | None = None,
    padding_mask: Tensor | None = None,
    mask: Tensor | None = None,
    pair_weight: Tensor | None = None,
    both_directions: bool = True,
    both_views: bool = False,
    normalize: bool = True,
    gather: bool = False,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """W(tau_beta) / W(tau) x -log p_+ of pairs a_i, b_i of two encoders; by default, the loss of CLIP.

    A pair that ids, labels or masks leave without negatives does not count, neither in the sum nor in the mean; if no
    pair has negatives, the loss is 0.

    Args:
        a: embeddings of one tower, (N, D).
        b: embeddings of the other, (N, D); gradient goes to both.
        tau: temperature of the vector, default 0.07. A 0-d tensor, such as `log_scale.exp().reciprocal()`, receives its
            gradient too: w_i times that of d_i. A value that is not a finite number > 0 is a ValueError on the CPU; on
            a device it is not looked at, since that would wait for the device: clamp the parameter there.
        tau_beta: temperature of the scalar, inf allowed; default None: tied to tau, which is InfoNCE.
        weight: of an anchor, default "sigmoid"; "equal": 1, and the value is d (DCL). Weights kept per image are not
            possible, since the two sides of a pair are not one image.
        ids: whole numbers (N,): pairs of an equal id, such as an image with two captions, are no negatives of each
            other.
        labels: whole numbers (N,): as ids, for a second reason, such as the class.
        padding_mask: bool (N,), True where the pair is padding: neither an anchor nor a negative. Its embeddings must
            be finite.
        mask: bool (N, K), True at [i, j] where b_j is no negative of a_i, nor a_i one of b_j; K = N, or with gather the
            pairs of all processes in the order of their ranks. With both_views it leaves out whole pairs, as ids do:
            a_i then has neither a_j nor b_j for a negative, and b_j neither a_i nor b_i. It takes the caller's memory;
            ids and labels take none.
        pair_weight: finite numbers >= 0, (N,), constants: the mean is sum w_i L_i / sum w_i; default None: 1.
        both_directions: the mean of the losses with a and with b as anchors; False: a alone.
        both_views: negatives from the anchor's own tower too; default False.
        normalize: False where all embeddings are unit vectors already.
        gather: negatives from all processes; the mean is over all processes.
        reduction: "mean" or "none": (N,), w_i L_i.
        stats: a dict that receives "W", "p_pos" and "r_pos", (N,) or with both directions (2, N), for logging.

    Example:
        >>> log_scale = torch.nn.Parameter(torch.tensor(2.659))
        >>> loss = two_towers(image, text, log_scale.exp().reciprocal())  # doctest: +SKIP
    """
    require_no_transform()
    require_temperature(tau, "tau")
    require_weight(weight, tau_beta)
    require_pairs(a, b, ("a", "b"))
    require_vector(ids, a, "ids", "whole")
    require_vector(labels, a, "labels", "whole")
    require_vector(padding_mask, a, "padding_mask", "bool")
    require_pair_weight(pair_weight, a)
    _require_mask(mask, a, distributed.world_size() if gather else 1)
    excluded = ExcludedPairs(tuple(x.long() for x in (ids, labels) if x is not None), padding_mask, mask)
    if pair_weight is None and not (excluded.any() or both_views or gather):
        require_in_batch_negatives(a.shape[0])
        small = small_batch_loss(
            a,
            b,
            tau,
            tau_beta,
            both_directions=both_directions,
            normalize=normalize,
            mean=reduction == "mean",
            weigh=FORMULAS[weight].weigh,
        )
        if small is not None:
            record(stats, small.d, small.weighed)
            return small.loss if reduction == "mean" else reduced(small.loss, reduction)
    a, b = unit(a, b, skip=not normalize)
    odds = in_batch_log_odds(
        a,
        b,
        tau,
        tau if tau_beta is None else tau_beta,
        both_directions=both_directions,
        both_views=both_views,
        gather=gather,
        excluded=excluded,
    )
    weighed = FORMULAS[weight].weigh(Odds(odds.alpha, None if tau_beta is None else odds.beta))
    loss = scalar_times_vector(weighed.scalar, odds.alpha, weighed.value)
    counted = odds.counted if excluded.any() else None
    record(stats, odds.alpha, weighed, gather, counted)
    return weighted_mean(loss, counted, pair_weight, reduction, gather)


def require_weight(weight: str, tau_beta: float | None) -> None:
    """Refuse weights of anchors other than "sigmoid" and "equal", and a tau_beta that is invalid or has no effect."""
    if weight not in FORMULAS:
        raise ValueError(f"weight must be one of {', '.join(FORMULAS)}, got {weight!r}")
    require_temperatures(1.0, tau_beta_of(weight, tau_beta, 1.0))


def _require_mask(mask: Tensor | None, a: Tensor, processes: int) -> None:
    if mask is None:
        return
    shape = (a.shape[0], a.shape[0] * processes)
    if mask.shape != shape or mask.dtype != torch.bool or mask.device != a.device:
        raise ValueError(
            f"mask must hold booleans of shape {shape} on {a.device}, got {mask.dtype} {tuple(mask.shape)} on "
            f"{mask.device}"
        )
