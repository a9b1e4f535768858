"""How far the similarities of a batch have moved from those of a start: the penalty of an anchor to the start."""

from typing import Any

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.first_derivative import first_derivative_only
from dualtemp.losses.arguments import require_gather_without_ring
from dualtemp.losses.unit_vectors import true_precision, unit

TILE = 1 << 21  # similarities at once: 8 MB of float32


def similarity_drift(features: Tensor, start: Tensor, *, gather: bool = False) -> Tensor:
    """Mean over all pairs of images of (s_ij - s'_ij)^2, a scalar: s of the features, s' of the start's.

    s_ij is the cosine of images i and j; i = j counts too, and is 0. Rotations and scales of the whole space cost
    nothing, and the two may differ in width. No N x N matrix is kept.

    Args:
        features: (N, F), with gradient.
        start: (N, G), features of the same images before training; no gradient.
        gather: the batch is that of all processes; the value is then the global mean.
    """
    require_gather_without_ring(gather)
    if features.ndim != 2 or start.ndim != 2 or len(features) != len(start) or not len(start):
        raise ValueError(f"similarity_drift: (N, F) and (N, G) expected, got {features.shape} and {start.shape}")
    y, z = unit(features, start)
    z = z.detach()
    together = gather and distributed.world_size() > 1
    everyone, start_of_all = (distributed.gather(y), distributed.gather(z)) if together else (y, z)
    found = _Drift.apply(y, everyone, z, start_of_all)
    return distributed.global_mean(found) if together else found  # pyright: ignore


class _Drift(torch.autograd.Function):
    """Value and both gradients from the same tiles: rows y (n, F) against columns (N, F), and z against those of z."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, columns: Tensor, z: Tensor, start_columns: Tensor) -> Tensor:
        total = y.new_zeros(())
        of_rows, of_columns = torch.zeros_like(y), torch.zeros_like(columns)
        with true_precision(y.device):
            for first in range(0, len(y), max(1, TILE // len(columns))):
                rows = slice(first, first + max(1, TILE // len(columns)))
                difference = y[rows] @ columns.T - z[rows] @ start_columns.T
                total += difference.square().sum()
                of_rows[rows] = difference @ columns
                of_columns += difference.T @ y[rows]
        pairs = len(y) * len(columns)
        ctx.inputs = y, columns
        ctx.save_for_backward(of_rows * (2 / pairs), of_columns * (2 / pairs))
        return total / pairs

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        of_rows, of_columns = ctx.saved_tensors
        return gradient * of_rows, gradient * of_columns, None, None
