"""The loss of a small batch of pairs in one step of autograd, from embeddings to the value of each anchor.

At 64 pairs a loss is 70 operations of a few microseconds each, and every node of the graph costs as much as several.
So if the product is one tile, normalization, log-odds and weights are one node. It is made of the same functions as the
general way, in the same order, and gives the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.first_derivative import first_derivative_only
from dualtemp.kernels import choice as fused
from dualtemp.losses.constants import can_remember, constant, mean_of
from dualtemp.losses.odds import Odds, Weighed
from dualtemp.losses.one_tile import gradient_one_tile, reduce_one_tile
from dualtemp.losses.product_plan import Plan, gradients_wanted, plan_of_pairs
from dualtemp.losses.temperature import Temperature, learned, temperature_value
from dualtemp.losses.unit_vectors import gradient_of_unit, lengths_of, require_no_transform, true_precision


class SmallBatch(NamedTuple):
    """The loss, with gradient, and its parts: the log-odds and the weights of the anchors."""

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
    alpha = temperature_value(tau_alpha)
    if isinstance(alpha, Tensor):
        return None
    beta = alpha if tau_beta is None else float(tau_beta)
    tau = learned(tau_alpha)
    plan = plan_of_pairs(
        q.shape[0],
        q.device,
        q.dtype,
        gradients_wanted(q, k, tau_alpha),
        alpha,
        beta,
        both_directions,
        q is k,
        normalize,
        tau is None and can_remember(q),  # constants of a temperature that learns would serve one step
    )
    if plan is None:
        return None
    step = _Step(plan, tau_beta is None, normalize, mean, weigh)
    loss = _SmallBatchLoss.apply(q, k, tau, step)
    return SmallBatch(loss, step.d, step.weighed)  # pyright: ignore


@dataclass(slots=True)
class _Step:
    """The inputs of a step, and its results besides the loss, in one object: autograd takes time for each argument."""

    plan: Plan
    tied: bool
    normalize: bool
    mean: bool
    weigh: Callable[[Odds], Weighed]
    d: Tensor = field(init=False)
    weighed: Weighed = field(init=False)


class _SmallBatchLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, tau: Tensor | None, step: _Step) -> Tensor:
        plan, c = step.plan, step.plan.numbers()
        a, b, of_a, of_b = q, k, None, None
        if step.normalize:
            of_a, of_b = lengths_of(q), lengths_of(k)
            a, b = q / of_a, k / of_b
        with true_precision(q.device):
            alpha, beta, own, vector, tile = reduce_one_tile(a, b, plan)
        assert own is not None
        step.d = alpha - own / c.tau_alpha
        weighed = step.weighed = step.weigh(Odds(step.d, None if step.tied else beta - own / c.tau_beta))
        ctx.step, ctx.inputs = step, (q, k, tau)
        ctx.save_for_backward(a, b, of_a, of_b, alpha, vector, tile, weighed.scalar)
        return mean_of(weighed.value) if step.mean else weighed.value.clone()

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        a, b, of_a, of_b, lse, vector, tile, scalar = ctx.saved_tensors
        step, (wants_a, wants_b, wants_tau, _) = ctx.step, ctx.needs_input_grad
        plan, c = step.plan, step.plan.numbers()
        of_lse = (gradient / constant(scalar.numel(), scalar) if step.mean else gradient) * scalar
        of_own = of_lse.sum(0).div_(c.minus_tau_alpha)
        with true_precision(a.device):
            if plan.vector:
                da = torch.addcmul(vector * (of_lse[0] / c.tau_alpha)[:, None], b, of_own[:, None])
                db = None
            else:
                da, db = gradient_one_tile(a, b, plan, lse, of_lse, of_own, tile, wants_a or wants_tau, wants_b)
        dtau = None
        if wants_tau:  # d is a function of s / tau alone, and sum_j s_ij dL/ds_ij = a_i . da_i
            total = (a * da).sum() / (2 if plan.symmetric else 1)  # as anchors and as keys
            dtau = (-total / plan.tau_alpha).to(ctx.inputs[2])
        if step.normalize:
            da = None if da is None else gradient_of_unit(da, a, of_a)
            db = None if db is None else gradient_of_unit(db, b, of_b)
        return da if wants_a else None, db, dtau, None
