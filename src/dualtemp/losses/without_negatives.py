"""Losses that need no negatives: VICReg and Barlow Twins keep the dimensions of the embeddings apart, not the images.

Both want the statistics of the whole batch: means (D,) and covariances (D, D). On several processes those are summed,
never the embeddings gathered, and local batches may differ in size. Every process then computes the same value from
the same sums, so that backward sends nothing. Memory grows as N D + D^2. Embeddings are not normalized.

A batch of one image, or of equal images, has variance 0: value and gradient are finite.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp import distributed
from dualtemp.first_derivative import first_derivative_only
from dualtemp.losses.arguments import require_gather_without_ring, require_pairs, require_weights
from dualtemp.losses.modules import _Loss
from dualtemp.losses.unit_vectors import require_no_transform, true_precision, unit

Stats = dict[str, Tensor]

VICREG_EPS = 1e-4  # the authors', below the square root of a variance
BARLOW_TWINS_EPS = 1e-5  # that of batch norm, which the authors normalize with


def vicreg(
    q: Tensor,
    k: Tensor,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    *,
    gather: bool = False,
    stats: Stats | None = None,
) -> Tensor:
    """Mean squared distance of the views, and two penalties on each view: little variance, and covariance.

    With C the unbiased covariance (D, D) of a view over the batch, the sum, a scalar, of

        invariance x mean (q - k)^2
        variance   x mean_i max(0, 1 - sqrt(C_ii + 1e-4))    averaged over the two views
        covariance x sum_i!=j C_ij^2 / D                     summed over the two views

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        invariance: weight of the distance, default 25.
        variance: weight of the variance term, default 25.
        covariance: weight of the covariance term, default 1.
        gather: the batch is that of all processes.
        stats: a dict that receives the three terms, unweighted, as "invariance", "variance" and "covariance".
    """
    require_weights(invariance=invariance, variance=variance, covariance=covariance)
    batch = _batch(q, k, gather)
    distance = batch.total((batch.q - batch.k).square().sum()) / (batch.count * q.shape[1])
    products = torch.stack([_product(x) for x in (batch.q_centered, batch.k_centered)])
    C = batch.total(products) / _at_least_1(batch.count - 1)  # (2, D, D)
    C_ii = C.diagonal(dim1=1, dim2=2)
    narrow = F.relu(1 - (C_ii + VICREG_EPS).sqrt()).mean()
    correlated = _off_diagonal_squares(C) / q.shape[1]
    _record(stats, invariance=distance, variance=narrow, covariance=correlated)
    return invariance * distance + variance * narrow + covariance * correlated


def barlow_twins(
    q: Tensor,
    k: Tensor,
    redundancy: float = 0.005,
    *,
    gather: bool = False,
    stats: Stats | None = None,
) -> Tensor:
    """Correlation of the two views, dimension by dimension, driven to the identity.

    With c_ij the correlation over the batch of q's dimension i and k's dimension j (variances plus 1e-5),

        sum_i (1 - c_ii)^2  +  redundancy x sum_i!=j c_ij^2

    A scalar, summed over dimensions as published.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        redundancy: weight of correlations between different dimensions, default 0.005.
        gather: the batch is that of all processes.
        stats: a dict that receives the two terms, unweighted, as "invariance" and "redundancy".
    """
    require_weights(redundancy=redundancy)
    batch = _batch(q, k, gather)
    q, k = batch.q_centered, batch.k_centered
    # The squares ride along with the product: one message.
    sums = torch.cat((_product(q, k), q.square().sum(0, keepdim=True), k.square().sum(0, keepdim=True)))
    moments = batch.total(sums) / batch.count
    scale = (moments[-2:] + BARLOW_TWINS_EPS).rsqrt()  # (2, D)
    c = moments[:-2] * scale[0].unsqueeze(1) * scale[1]
    invariance, redundant = (1 - c.diagonal()).square().sum(), _off_diagonal_squares(c)
    _record(stats, invariance=invariance, redundancy=redundant)
    return invariance + redundancy * redundant


class VICRegLoss(_Loss):
    """`vicreg` as a module.

    Example:
        >>> criterion = VICRegLoss()
        >>> loss = criterion(projector(encoder(view1)), projector(encoder(view2)))  # doctest: +SKIP
    """

    has_ring = False

    def __init__(
        self, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0, *, gather: bool = False
    ) -> None:
        super().__init__(invariance=invariance, variance=variance, covariance=covariance, gather=gather)

    def forward(self, q: Tensor, k: Tensor, stats: Stats | None = None) -> Tensor:
        """Loss of two views (N, D)."""
        return vicreg(q, k, **self.settings, stats=stats)


class BarlowTwinsLoss(_Loss):
    """`barlow_twins` as a module.

    Example:
        >>> criterion = BarlowTwinsLoss()
        >>> loss = criterion(projector(encoder(view1)), projector(encoder(view2)))  # doctest: +SKIP
    """

    has_ring = False

    def __init__(self, redundancy: float = 0.005, *, gather: bool = False) -> None:
        super().__init__(redundancy=redundancy, gather=gather)

    def forward(self, q: Tensor, k: Tensor, stats: Stats | None = None) -> Tensor:
        """Loss of two views (N, D)."""
        return barlow_twins(q, k, **self.settings, stats=stats)


class _Batch(NamedTuple):
    q: Tensor  # (N, D) of this process, in float32 or float64
    k: Tensor
    q_centered: Tensor  # less the mean over the batch
    k_centered: Tensor
    count: Tensor | int  # images of the batch
    together: bool  # whether other processes have a part of it

    def total(self, x: Tensor) -> Tensor:
        """Sum over the processes; its gradient is right under DistributedDataParallel's averaging."""
        # `global_mean` passes the local gradient on as it is, which is that of the sum times the number of processes:
        # the average over the processes divides by it.
        return distributed.global_mean(x) * distributed.world_size() if self.together else x


def _batch(q: Tensor, k: Tensor, gather: bool) -> _Batch:
    require_gather_without_ring(gather)
    require_pairs(q, k)
    q, k = unit(q, k, skip=True)
    together = gather and distributed.world_size() > 1
    count: Tensor | int = q.shape[0]
    with torch.no_grad():
        sums = torch.cat((q.sum(0), k.sum(0), q.new_full((1,), count)))
        if together:
            sums = distributed.global_mean(sums) * distributed.world_size()
            count = sums[-1]
        q_mean, k_mean = (sums[:-1] / count).chunk(2)
    # The means need no gradient: a covariance does not change with the point that it is taken around, to first order.
    return _Batch(q, k, q - q_mean, k - k_mean, count, together)


class _Product(torch.autograd.Function):
    """x^T y, (N, D) and (N, D) to (D, D); x^T x where y is None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, y)
        with true_precision(x.device):
            return x.T @ (x if y is None else y)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        with true_precision(x.device):
            if y is None:
                return x @ (gradient + gradient.T), None
            return (
                y @ gradient.T if ctx.needs_input_grad[0] else None,
                x @ gradient if ctx.needs_input_grad[1] else None,
            )


def _product(x: Tensor, y: Tensor | None = None) -> Tensor:
    if torch.compiler.is_compiling():
        from dualtemp.losses.operators import true_product

        return true_product(x, x if y is None else y)
    require_no_transform()
    return _Product.apply(x, y)  # pyright: ignore


def _off_diagonal_squares(C: Tensor) -> Tensor:
    """Sum of the squares of all entries of (..., D, D) but the diagonals'."""
    # Not the sum of all less that of the diagonal, which loses its digits where the diagonal is far larger.
    return (C - C.diagonal(dim1=-2, dim2=-1).diag_embed()).square().sum()


def _at_least_1(count: Tensor | int) -> Tensor | int:
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)


def _record(stats: Stats | None, **terms: Tensor) -> None:
    if stats is not None:
        stats.update({name: term.detach() for name, term in terms.items()})
