"""The loss of a small batch of pairs in one step of autograd, from embeddings to the value of each anchor.

At 64 pairs a loss is a hundred operations of a microsecond each, and every node of the graph costs as much as several.
So where the product is one tile, normalisation, log-odds and weights are one node. It is made of the same functions as
the general way, in the same order, and gives the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.first_derivative import first_derivative_only
from dualtemp.kernels import choice as fused
from dualtemp.losses import product_plan
from dualtemp.losses.odds import Odds, Weighed
from dualtemp.losses.one_tile import gradient_one_tile, reduce_one_tile
from dualtemp.losses.product_plan import Plan, Walk, plan_of_pairs
from dualtemp.losses.temperature import Temperature, learned, temperature_value
from dualtemp.losses.unit_vectors import gradient_of_unit, lengths_of, require_no_transform, true_precision


class SmallBatch(NamedTuple):
    """The loss, with gradient, and what it is made of: log-odds and what the anchors weigh."""

    loss: Tensor  # 0-d, the mean, or (A, N)
    d: Tensor
    weighed: Weighed


def small_batch_loss(
    q: Tensor,
    k: Tensor,
    tau_alpha: Temperature,
    tau_beta: float | None,
    *,
    both_directions: bool,
    normalize: bool,
    mean: bool,
    weigh: Callable[[Odds], Weighed],
) -> SmallBatch | None:
    """Loss of pairs of embeddings (N, D), with the other view's keys for negatives; None if the batch is not small.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        tau_alpha: temperature of the vector; a 0-d tensor receives its gradient.
        tau_beta: temperature of the scalar; None: tied.
        both_directions: k_i are anchors too.
        normalize: False where they are unit vectors already.
        mean: give the mean over all anchors, not the value of each.
        weigh: turns the log-odds, which need no gradient there, into weights and values.
    """
    if q.dtype != k.dtype or q.dtype not in (torch.float32, torch.float64) or (q is k and not normalize):
        return None
    if torch.compiler.is_compiling() or fused.available(q.device):
        return None
    require_no_transform()
    walk = Walk.of(q, k, tau_alpha, both_directions, False, None)
    if normalize and walk.anchors_alone:  # as in the general way, where keys that were normalised want a gradient
        walk = Walk(False, False, len(q) * len(k) <= product_plan.KEPT_ELEMENTS)
    alpha = temperature_value(tau_alpha)
    if isinstance(alpha, Tensor):
        return None
    beta = alpha if tau_beta is None else float(tau_beta)
    plan = plan_of_pairs(len(q), q.device.type, q.dtype, walk, alpha, beta, both_directions)
    if plan is None:
        return None
    made: list[Any] = []
    loss = _SmallBatchLoss.apply(q, k, learned(tau_alpha), plan, tau_beta is None, normalize, mean, weigh, made)
    return SmallBatch(loss, *made)  # pyright: ignore


class _SmallBatchLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        tau: Tensor | None,
        plan: Plan,
        tied: bool,
        normalize: bool,
        mean: bool,
        weigh: Callable[[Odds], Weighed],
        made: list[Any],
    ) -> Tensor:
        a, b, of_a, of_b = q, k, None, None
        if normalize:
            of_a, of_b = lengths_of(q), lengths_of(k)
            a, b = q / of_a, k / of_b
        with true_precision(q.device):
            alpha, beta, own, vector, tile = reduce_one_tile(a, b, plan)
        d = alpha - own / plan.tau_alpha
        weighed = weigh(Odds(d, None if tied else beta - own / plan.tau_beta))
        ctx.plan, ctx.normalize, ctx.mean, ctx.temperature = plan, normalize, mean, tau
        ctx.save_for_backward(a, b, of_a, of_b, alpha, vector, tile, weighed.scalar)
        made += [d, weighed]
        return weighed.value.mean() if mean else weighed.value.clone()

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        a, b, of_a, of_b, lse, vector, tile, scalar = ctx.saved_tensors
        plan, (wants_a, wants_b, wants_tau, *_) = ctx.plan, ctx.needs_input_grad
        of_lse = (gradient / scalar.numel() if ctx.mean else gradient) * scalar
        of_own = of_lse.neg().sum(0).div_(plan.tau_alpha)
        with true_precision(a.device):
            if plan.vector:
                da = torch.addcmul(vector * (of_lse[0] / plan.tau_alpha)[:, None], b, of_own[:, None])
                db = None
            else:
                da, db = gradient_one_tile(a, b, plan, lse, of_lse, of_own, tile, wants_a or wants_tau, wants_b)
        dtau = None
        if wants_tau:  # d is a function of s / tau alone, and sum_j s_ij dL/ds_ij = a_i . da_i
            dtau = (-(a * da).sum() / plan.tau_alpha).to(ctx.temperature)  # pyright: ignore
        if ctx.normalize:
            da = None if da is None else gradient_of_unit(da, a, of_a)
            db = None if db is None else gradient_of_unit(db, b, of_b)
        return da if wants_a else None, db, dtau, None, None, None, None, None, None
