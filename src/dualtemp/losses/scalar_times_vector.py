"""A loss from its scalar and its vector: the gradient, the mean over anchors, and what there is to log of them."""

from typing import Any

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.first_derivative import first_derivative_only
from dualtemp.losses.arguments import Reduction, require_reduction
from dualtemp.losses.hardness import NO_NEGATIVES, positive_probability
from dualtemp.losses.odds import Weighed
from dualtemp.losses.unit_vectors import require_no_transform

Stats = dict[str, Tensor]


def scalar_times_vector(scalar: Tensor, d: Tensor, value: Tensor) -> Tensor:
    """A loss whose value is `value` and whose gradient is `scalar` times that of the log-odds `d`; all (..., N)."""
    if torch.compiler.is_compiling():
        return value.detach() + scalar.detach() * (d - d.detach())
    require_no_transform()
    return _ScalarTimesVector.apply(scalar.detach(), d, value.detach())  # pyright: ignore


class _ScalarTimesVector(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scalar: Tensor, d: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(scalar, d)
        return value.clone()

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        scalar, _ = ctx.saved_tensors
        return None, gradient * scalar, None


def reduced(loss: Tensor, reduction: Reduction, gather: bool = False) -> Tensor:
    """The mean of a loss (N,) or (A, N), with `gather` over all processes; for "none" (N,), the mean of a pair."""
    require_reduction(reduction)
    if reduction == "none":
        return loss if loss.ndim == 1 else loss.mean(0)  # both anchors of a pair
    return distributed.global_mean(loss.mean()) if gather else loss.mean()


def record(
    stats: Stats | None, d: Tensor, weighed: Weighed, gather: bool = False, counted: Tensor | None = None
) -> None:
    """Write what there is to log of the anchors, (N,) or (A, N), into `stats`; one direction is (N,).

    counted: bool, in the shape of d: the weight of other anchors is 0.
    """
    if stats is None:
        return
    w, log_w = weighed.scalar, weighed.log_scalar()
    if counted is not None:
        w, log_w = w * counted, log_w.masked_fill(~counted, NO_NEGATIVES)
    of_anchors = (d, w, log_w)
    d, scalar, log_scalar = (x[0] if x.ndim > 1 and len(x) == 1 else x for x in of_anchors)
    stats["W"], stats["p_pos"] = scalar, positive_probability(d.detach())
    if not gather or distributed.world_size() == 1:
        stats["r_pos"] = torch.softmax(log_scalar, -1)
        return
    everyone = distributed.gather(log_scalar.transpose(0, -1), equal=True).transpose(0, -1)
    n, rank = d.shape[-1], distributed.rank()
    stats["r_pos"] = torch.softmax(everyone, -1)[..., rank * n : (rank + 1) * n]
