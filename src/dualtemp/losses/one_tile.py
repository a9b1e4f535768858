"""Log-sum-exp of a product that is one tile, and its gradient: what small batches take, where operations are the cost.

The same operations on the same numbers as for many tiles, to the bit, but nothing is collected: no slices, no sums that
start at zero, no buffers. Without a fixed shift, or with keys left out, the general walk is taken.
"""

import math

import torch
from torch import Tensor

from dualtemp.losses.product_plan import Plan
from dualtemp.losses.temperature import are_tied, is_infinite

BITS = 1 / math.log(2)  # tiles are in base 2, because exp2 takes half the time of exp


def reduce_one_tile(a: Tensor, b: Tensor, plan: Plan) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Log-sum-exp at tau_alpha and at tau_beta, own similarities, the vector component, the exponentials."""
    alpha, beta = float(plan.tau_alpha), float(plan.tau_beta)
    none = a.new_empty(0)
    tile, own = torch.mm(a * (BITS / alpha), b.t()), none
    if plan.own is not None:
        entries = tile.diagonal(plan.own)
        own = entries.clone()
        entries.fill_(-math.inf)
        own.mul_(alpha / BITS)
    tile.sub_(BITS / alpha)
    two = not (are_tied(alpha, beta) or is_infinite(beta))
    detached = _sums((tile * (alpha / beta)).exp2_(), plan).log_().add_(1 / beta) if two else none
    sums = _sums(tile.exp2_(), plan)
    vector = torch.mm(tile, b).div_(sums[0, :, None]) if plan.vector else none
    lse = sums.log_().add_(1 / alpha)
    if not two:
        detached = plan.equal_keys(a, b) if is_infinite(beta) else lse.clone()
    return lse, detached, own, vector, tile if plan.kept else none


def _sums(exponentials: Tensor, plan: Plan) -> Tensor:
    rows = exponentials.sum(1)
    return torch.stack((rows, exponentials.sum(0))) if plan.both_directions else rows[None]


def gradient_one_tile(
    a: Tensor,
    b: Tensor,
    plan: Plan,
    lse: Tensor,
    of_lse: Tensor,
    of_own: Tensor | None,
    tile: Tensor,
    wants_a: bool,
    wants_b: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradient for a and b, given that for log-sum-exp, (1, N) or (2, N), and for own similarities (N,)."""
    tau = float(plan.tau_alpha)
    weight = (of_lse / tau).mul_((1 / tau - lse).exp_())
    if plan.both_directions or plan.symmetric:
        weights = (weight[0].unsqueeze(1) + weight[-1]).mul_(tile)
    else:
        weights = tile * weight[0].unsqueeze(1)
    if of_own is not None:
        weights.diagonal(plan.own or 0).copy_(2 * of_own if plan.symmetric else of_own)
    da = torch.mm(weights, b) if wants_a else None
    return da, torch.mm(weights.t(), a) if wants_b and not plan.symmetric else None
