"""Negatives from all processes without gathering them: blocks of keys travel around the ring of processes.

Each process holds its own keys, the block that is passing, and the one that is arriving meanwhile, however many
processes there are. Forward adds every block's sum of exponentials. Backward sends the blocks around once more, each
followed by its gradient, to which every process adds, and which returns home with the sum over all of them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.first_derivative import first_derivative_only
from dualtemp.losses.similarity import log_sum_exp


class RingReduced(NamedTuple):
    """This process's anchors against the keys of all; A = 2 with both directions, else 1."""

    alpha: Tensor  # (A, N) log-sum-exp at tau_alpha over the negatives, with gradient
    beta: Tensor  # (A, N) the same at tau_beta, detached
    positive: Tensor  # (N,) similarity of the anchor's pair, with gradient


class _Plan(NamedTuple):
    tau_beta: float | Tensor
    both_directions: bool
    both_views: bool

    @property
    def views(self) -> int:
        """How many views of each pair travel: the key alone, or both."""
        return 1 + (self.both_directions or self.both_views)


def ring_log_sum_exp(
    q: Tensor,
    k: Tensor,
    tau_alpha: float | Tensor,
    tau_beta: float | Tensor,
    *,
    both_directions: bool,
    both_views: bool,
) -> RingReduced:
    """Reduce the similarities of unit vectors q_i, k_i (N, D) to those of all processes, without the own pair's.

    Args:
        q: one view, (N, D); every process brings as many.
        k: the other view, (N, D).
        tau_alpha: temperature of the part that carries the gradient; a tensor receives its own.
        tau_beta: temperature of the detached part.
        both_directions: k_i are anchors too.
        both_views: negatives from the anchor's own view as well as from the other.
    """
    distributed.require_equal_batches(q)
    plan = _Plan(tau_beta, both_directions, both_views)
    return RingReduced(*_Ring.apply(q, k, tau_alpha, plan))  # pyright: ignore


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, tau_alpha: float | Tensor, plan: _Plan) -> tuple[Tensor, ...]:
        alpha, beta, positive = None, None, None
        for block, home in _passing(_payload(q, k, plan)):
            more_alpha, more_beta, own = _reduce_block(q, k, block, home, tau_alpha, plan)
            alpha = more_alpha if alpha is None else torch.logaddexp(alpha, more_alpha)
            beta = more_beta if beta is None else torch.logaddexp(beta, more_beta)
            positive = own if home else positive
        assert alpha is not None
        assert beta is not None
        learned = isinstance(tau_alpha, Tensor)
        ctx.plan, ctx.tau = plan, None if learned else tau_alpha
        ctx.save_for_backward(q, k, alpha, tau_alpha if learned else None)
        ctx.mark_non_differentiable(beta)
        ctx.set_materialize_grads(False)
        return alpha, beta, positive  # pyright: ignore

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, of_lse: Tensor | None, of_beta: None, of_positive: Tensor | None) -> tuple[Any, ...]:
        q, k, lse, learned = ctx.saved_tensors
        plan, wants = ctx.plan, ctx.needs_input_grad[:3]
        of_lse = torch.zeros_like(lse) if of_lse is None else of_lse
        keys_learn = wants[1] or (wants[0] and plan.views == 2)
        q, k = q.detach().requires_grad_(wants[0]), k.detach().requires_grad_(wants[1])
        tau = ctx.tau if learned is None else learned.detach().requires_grad_(wants[2])
        inputs = [x for x in (q, k, tau) if isinstance(x, Tensor) and x.requires_grad]
        totals = [torch.zeros_like(x) for x in inputs]
        journey: Tensor | None = None  # the gradient that follows the passing block
        for block, home in _passing(_payload(q, k, plan)):
            block = block.detach().requires_grad_(keys_learn)
            with torch.enable_grad():
                part, _, own = _reduce_block(q, k, block, home, tau, plan)
            # The block's share of the sums of exponentials is what the derivative of logaddexp comes to.
            outputs, weights = [part], [of_lse * (part.detach() - lse).exp_()]
            if home and of_positive is not None:
                outputs, weights = [part, own], [*weights, of_positive]
            found = _gradients(outputs, weights, [*inputs, block] if keys_learn else inputs)
            for total, more in zip(totals, found, strict=False):
                total += more
            if keys_learn:
                journey = distributed.send_to_next(found[-1] if journey is None else journey + found[-1])()
        given = iter(totals)
        dq, dk, dtau = (next(given) if w else None for w in wants)
        if journey is not None:  # back where it began
            dk = None if dk is None else dk + journey[:, -k.shape[1] :]
            dq = dq + journey[:, : q.shape[1]] if dq is not None and plan.views == 2 else dq
        return dq, dk, dtau, None


def _payload(q: Tensor, k: Tensor, plan: _Plan) -> Tensor:
    """What travels: (N, D) keys, or (N, 2 D) both views."""
    return (torch.cat((q, k), dim=1) if plan.views == 2 else k).detach()


def _passing(block: Tensor) -> Iterator[tuple[Tensor, bool]]:
    """The blocks of all processes, this one's first, and whether it is this one's; the next arrives meanwhile."""
    for step in range(world := distributed.world_size()):
        arriving = distributed.send_to_next(block) if step < world - 1 else None
        yield block, step == 0
        if arriving is not None:
            block = arriving()


def _reduce_block(
    q: Tensor, k: Tensor, block: Tensor, home: bool, tau_alpha: float | Tensor, plan: _Plan
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-sum-exp (A, N) at both temperatures over one block's negatives; own similarities, if it is this process's."""
    q_keys, k_keys = block[:, : q.shape[1]], block[:, -k.shape[1] :]
    if home and len(q) == 1:  # its own pair alone, which is no negative
        nothing = q.new_full((1 + plan.both_directions, 1), -torch.inf)
        return nothing, nothing, (q * k_keys).sum(-1)
    pairs = [[(q, k_keys)], [(q, q_keys)]]
    if plan.both_directions:
        pairs = [[(q, k_keys), (k, q_keys)], [(q, q_keys), (k, k_keys)]]
    taus: Any = tau_alpha, plan.tau_beta
    alpha = beta = positive = None
    for views in pairs[: 1 + plan.both_views]:
        found = [log_sum_exp(a, b, *taus, own=0 if home else None) for a, b in views]
        more_alpha, more_beta = torch.cat([x.alpha for x in found]), torch.cat([x.beta for x in found])
        alpha = more_alpha if alpha is None else torch.logaddexp(alpha, more_alpha)
        beta = more_beta if beta is None else torch.logaddexp(beta, more_beta)
        positive = found[0].own if positive is None else positive
    return alpha, beta, positive  # pyright: ignore


def _gradients(outputs: list[Tensor], weights: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Gradient for each input, 0 where it plays no part."""
    live = [(x, w) for x, w in zip(outputs, weights, strict=True) if x.requires_grad]
    if not live:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad([x for x, _ in live], inputs, [w for _, w in live], allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]
