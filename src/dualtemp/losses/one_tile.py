"""Log-sum-exp of a product that is one tile, and its gradient: for small batches, where each operation has its cost.

The operations and the numbers, and so the bits, are those for many tiles, but nothing is accumulated: no slices, no
sums that start at zero, no buffers. Without a fixed shift, or with excluded keys, the general walk is taken.
"""

import math

import torch
from torch import Tensor

from dualtemp.losses.product_plan import Plan
from dualtemp.losses.temperature import is_infinite


def reduce_one_tile(
    a: Tensor, b: Tensor, plan: Plan
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Log-sum-exp at tau_alpha and at tau_beta, own similarities, the vector component, the exponentials.

    The last three are None if they do not exist or are not wanted.
    """
    c, own = plan.numbers(), None
    tile = torch.mm(a * c.scale, b.t())
    if plan.own is not None:
        entries = tile.diagonal(plan.own)
        own = entries * c.unscale
        entries.fill_(-math.inf)
    tile.sub_(c.scale)
    two = not (plan.tau_beta == plan.tau_alpha or is_infinite(plan.tau_beta))
    second = _sums((tile * c.to_beta).exp2_(), plan).log_().add_(c.shift_beta) if two else None
    sums = _sums(tile.exp2_(), plan)
    vector = torch.mm(tile, b).div_(sums[0, :, None]) if plan.vector else None
    lse = sums.log_().add_(c.shift_alpha)
    if second is None:
        second = plan.equal_keys(a, b) if is_infinite(plan.tau_beta) else lse.clone()
    return lse, second, own, vector, tile if plan.kept else None


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
    c = plan.numbers()
    weight = (of_lse / c.tau_alpha).mul_((c.shift_alpha - lse).exp_())
    if plan.both_directions or plan.symmetric:
        weights = (weight[0].unsqueeze(1) + weight[-1]).mul_(tile)
    else:
        weights = tile * weight[0].unsqueeze(1)
    if of_own is not None:
        weights.diagonal(plan.own or 0).copy_(2 * of_own if plan.symmetric else of_own)
    da = torch.mm(weights, b) if wants_a else None
    return da, torch.mm(weights.t(), a) if wants_b and not plan.symmetric else None
