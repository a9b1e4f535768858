"""The mean of a loss over the anchors that count, with a weight for each pair."""

import torch
import torch.distributed as dist
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.arguments import Reduction, require_reduction


def require_vector(x: Tensor | None, like: Tensor, name: str, kind: str) -> None:
    """Refuse what is not one value for each row of `like` (N, D), on its device; kind is "bool", "float" or "whole"."""
    if x is None:
        return
    fits = {
        "bool": x.dtype == torch.bool,
        "float": x.is_floating_point(),
        "whole": not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool),
    }[kind]
    words = {"bool": "booleans", "float": "floating-point numbers", "whole": "whole numbers"}[kind]
    if not fits or x.shape != like.shape[:1] or x.device != like.device:
        raise ValueError(
            f"{name} must hold {len(like)} {words} on {like.device}, got {x.dtype} {tuple(x.shape)} on {x.device}"
        )


def require_pair_weight(weight: Tensor | None, like: Tensor) -> None:
    """Refuse weights that are not a finite number >= 0 for each pair; on a device the numbers are not looked at."""
    require_vector(weight, like, "pair_weight", "float")
    if weight is None or weight.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if not (weight >= 0).logical_and(weight.isfinite()).all():
        raise ValueError("pair_weight must hold finite numbers >= 0, got a negative one, an inf or a nan")


def weighted_mean(
    loss: Tensor, counted: Tensor | None, pair_weight: Tensor | None, reduction: Reduction, gather: bool
) -> Tensor:
    """sum w_i L_i / sum w_i over the anchors that count; 0 if none does.

    Args:
        loss: (A, N), the anchors of both directions if A is 2.
        counted: (A, N), bool; the loss of others is 0. None: all count.
        pair_weight: w_i (N,), a constant; None: 1.
        reduction: "none" gives (N,): w_i L_i, the mean of both anchors of a pair.
        gather: sums over all processes; the gradient is right under DistributedDataParallel.
    """
    require_reduction(reduction)
    if counted is None and pair_weight is None:
        mean = loss.mean(0 if reduction == "none" else None)
        return distributed.global_mean(mean) if gather and reduction == "mean" else mean
    weight = torch.ones_like(loss) if counted is None else counted.to(loss.dtype)
    if pair_weight is not None:
        weight = weight * pair_weight.detach().to(loss.dtype)
    loss = loss * weight
    if reduction == "none":
        return loss.mean(0)
    total = weight.sum()
    if not gather or distributed.world_size() == 1:
        return loss.sum() / torch.where(total > 0, total, 1.0)
    dist.all_reduce(total)
    return distributed.global_mean(loss.sum() * distributed.world_size() / torch.where(total > 0, total, 1.0))
