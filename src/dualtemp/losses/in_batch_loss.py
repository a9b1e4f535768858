"""The loss of a batch of pairs, for any weight of its anchors and any kind of temperature."""

import math
from typing import Any

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.arguments import (
    Gather,
    Reduction,
    require_gather,
    require_in_batch_negatives,
    require_pairs,
    require_temperatures,
)
from dualtemp.losses.hardness import positive_similarity
from dualtemp.losses.in_batch import in_batch_log_odds
from dualtemp.losses.odds import Odds, Weight
from dualtemp.losses.own_temperatures import log_odds_at
from dualtemp.losses.scalar_times_vector import Stats, record, reduced, scalar_times_vector
from dualtemp.losses.similarity import unit
from dualtemp.losses.small_batch import small_batch_loss
from dualtemp.losses.temperature_schedule import AdaptiveTemperature, number_or_tied
from dualtemp.losses.weights import Formula, in_batch_weight_named, require_index


def in_batch_loss(
    q: Tensor,
    k: Tensor,
    tau_alpha: float | AdaptiveTemperature,
    tau_beta: float | AdaptiveTemperature | None,
    *,
    weight: str | Weight,
    index: Tensor | None,
    both_directions: bool,
    both_views: bool,
    normalize: bool,
    gather: Gather,
    reduction: Reduction,
    stats: Stats | None,
    name: str = "tau_alpha",
) -> Tensor:
    """Loss of pairs (N, D); arguments as of `dual_temperature`.

    A tau_beta of None is tied; name: what errors call tau_alpha. Each anchor's gradient is its weight times that of its
    log-odds; `weight` computes the value and the weight from these.
    """
    weigh = in_batch_weight_named(weight)
    tau_beta = number_or_tied(tau_alpha, tau_beta)
    lowest = tau_alpha.lowest if isinstance(tau_alpha, AdaptiveTemperature) else tau_alpha
    require_temperatures(lowest, tau_beta, name)
    require_pairs(q, k)
    if isinstance(weigh, Formula) and not (both_views or gather or isinstance(tau_alpha, AdaptiveTemperature)):
        require_in_batch_negatives(q.shape[0])
        small = small_batch_loss(
            q,
            k,
            tau_alpha,
            tau_beta,
            both_directions=both_directions,
            normalize=normalize,
            mean=reduction == "mean",
            weigh=weigh.weigh,
        )
        if small is not None:
            record(stats, small.d, small.weighed)
            return small.loss if reduction == "mean" else reduced(small.loss, reduction)
    require_gather(gather)
    q, k = unit(q, k, skip=not normalize)
    own = None
    if weigh.images:
        index = require_index(index, q.shape[0], weigh.images, q.device)
        own = weigh.temperatures(index, 1 + both_directions, lowest)
    if own is not None and isinstance(tau_alpha, AdaptiveTemperature):
        raise ValueError(f"{name} must be a number where each image has a temperature of its own, got {tau_alpha}")
    how: dict[str, Any] = {"both_directions": both_directions, "both_views": both_views, "gather": gather}
    if isinstance(tau_alpha, AdaptiveTemperature):
        odds = _adaptive_odds(q, k, tau_alpha, tau_beta, **how)
    elif own is not None:
        odds = log_odds_at(q, k, own, **how)
    else:
        d, beta = in_batch_log_odds(q, k, tau_alpha, tau_alpha if tau_beta is None else tau_beta, **how)
        odds = Odds(d, None if tau_beta is None else beta)
    if weigh.images:
        everyone = q.shape[0] * (distributed.world_size() if gather else 1)
        negatives = (everyone - 1) * (1 + both_views)
        traced = torch.compiler.is_compiling()  # perhaps for batches of any length
        odds = odds._replace(log_negatives=odds.d.new_full((), negatives).log() if traced else math.log(negatives))
    weighed = weigh.weigh(odds, index, lowest, bool(gather))
    loss = scalar_times_vector(weighed.scalar, odds.d, weighed.value)
    record(stats, odds.d, weighed, bool(gather))
    return reduced(loss, reduction, bool(gather))


def _adaptive_odds(
    q: Tensor, k: Tensor, tau: AdaptiveTemperature, tau_beta: float | None, *, gather: Gather, **how: Any
) -> Odds:
    """Log-odds at a temperature that depends on the batch: those of shorter vectors at the lowest one."""
    with torch.no_grad():
        alignment = positive_similarity(q, k).mean()
        now = tau(distributed.global_mean(alignment) if gather else alignment)
        share = (tau.lowest / now).sqrt()  # of each of two vectors, so that all products shrink alike
        beta = None
        if tau_beta is not None:
            beta = in_batch_log_odds(q, k, tau_beta, tau_beta, gather=gather, **how).beta
    return Odds(in_batch_log_odds(q * share, k * share, tau.lowest, tau.lowest, gather=gather, **how).alpha, beta)
