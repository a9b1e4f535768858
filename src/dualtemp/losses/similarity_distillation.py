"""Compare a student's similarities of all pairs of a batch with a teacher's, each at its own temperature.

Neither N x N matrix is needed whole: the student's log-sum-exp is that of the other losses, tile by tile. The teacher's
sum_j P_ij k_j is computed a few rows at a time, and backward computes these rows again. Memory grows with N.
"""

from typing import Any

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.first_derivative import first_derivative_only
from dualtemp.losses.arguments import (
    Reduction,
    require_gather_without_ring,
    require_in_batch_negatives,
    require_pairs,
    require_temperatures,
)
from dualtemp.losses.hardness import positive_similarity
from dualtemp.losses.product_plan import TILE_ELEMENTS
from dualtemp.losses.scalar_times_vector import reduced
from dualtemp.losses.similarity import log_sum_exp, true_precision, unit

TAU_TEACHER, TAU_STUDENT = 0.05, 0.1


def similarity_distillation(
    q: Tensor,
    k: Tensor,
    teacher: Tensor,
    tau_teacher: float = TAU_TEACHER,
    tau_student: float = TAU_STUDENT,
    *,
    normalize: bool = True,
    gather: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """KL(P_i || Q_i) of each image i of a batch, the mean of its two views as anchors.

    P_i is the softmax over the other images j of the teacher's cosines t_i . t_j / tau_teacher, Q_i that of the
    student's q_i . k_j / tau_student (and of k_i . q_j). The gradient of an anchor is sum_j (Q_ij - P_ij) k_j /
    tau_student: the vector of the contrastive losses, with the teacher's weights in the place of the positive.

    Args:
        q: the student's embeddings of one view, (N, D).
        k: those of the other view, (N, D); it may be q itself.
        teacher: the teacher's features of the same images, (N, F) of any width; they receive no gradient.
        tau_teacher: temperature of the teacher's similarities, default 0.05.
        tau_student: temperature of the student's, default 0.1.
        normalize: False where all embeddings are unit vectors already.
        gather: the images of all processes are compared with each other; the mean is over all processes.
        reduction: "mean" or "none": (N,).
    """
    require_temperatures(tau_teacher, name="tau_teacher")
    require_temperatures(tau_student, name="tau_student")
    require_gather_without_ring(gather)
    require_pairs(q, k)
    if teacher.ndim != 2 or len(teacher) != len(q) or not teacher.is_floating_point() or teacher.device != q.device:
        raise ValueError(
            f"teacher must be a floating-point ({len(q)}, F) matrix on {q.device}, got {teacher.dtype} of shape "
            f"{tuple(teacher.shape)} on {teacher.device}"
        )
    together = gather and distributed.world_size() > 1
    require_in_batch_negatives(len(q) * (distributed.world_size() if together else 1))
    one_view = k is q
    q, k = unit(q, k, skip=not normalize)
    k = q if one_view else k
    (t,) = unit(teacher.detach().to(q.dtype), skip=not normalize)
    q_keys, k_keys, t_keys, own = q, k, t, 0
    if together:
        own, t_keys = distributed.rank() * len(q), distributed.gather(t)
        q_keys = distributed.gather(q)
        k_keys = q_keys if one_view else distributed.gather(k)
    keys = q_keys if one_view else torch.cat((k_keys, q_keys), 1)
    means, negative_entropy = _TaughtMeans.apply(keys, t, t_keys, tau_teacher, own)  # pyright: ignore
    if one_view:
        lse, taught = log_sum_exp(q, q_keys, tau_student, own=own).alpha, positive_similarity(q, means)[None]
    else:
        mean_k, mean_q = means.chunk(2, 1)
        taught = torch.stack((positive_similarity(q, mean_k), positive_similarity(k, mean_q)))
        if together:
            lse = torch.cat([log_sum_exp(*pair, tau_student, own=own).alpha for pair in ((q, k_keys), (k, q_keys))])
        else:  # both directions are rows and columns of the same matrix
            lse = log_sum_exp(q, k, tau_student, own=0, both_directions=True).alpha
    return reduced(lse - taught / tau_student + negative_entropy, reduction, gather)


class _TaughtMeans(torch.autograd.Function):
    """sum_j P_ij values_j (N, V), and sum_j P_ij log P_ij (N,), detached; P (N, K) is made a few rows at a time."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, t: Tensor, keys: Tensor, tau: float, own: int) -> tuple[Tensor, Tensor]:
        means, negative_entropy = values.new_empty(len(t), values.shape[1]), t.new_empty(len(t))
        with true_precision(t.device):
            for rows in _row_blocks(t, keys):
                logits = _logits(t, keys, rows, tau, own)
                lse = torch.logsumexp(logits, 1)
                weights = (logits - lse[:, None]).exp_()
                torch.mm(weights, values, out=means[rows])
                # An own key has weight 0 and logit -inf: 0 in the sum.
                negative_entropy[rows] = torch.nan_to_num(weights.mul_(logits), nan=0.0).sum(1) - lse
        ctx.save_for_backward(t, keys)
        ctx.tau, ctx.own = tau, own
        ctx.mark_non_differentiable(negative_entropy)
        return means, negative_entropy

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        t, keys = ctx.saved_tensors
        of_values = gradient.new_zeros(len(keys), gradient.shape[1])
        with true_precision(t.device):
            for rows in _row_blocks(t, keys):
                weights = torch.softmax(_logits(t, keys, rows, ctx.tau, ctx.own), 1)
                of_values.addmm_(weights.T, gradient[rows])
        return of_values, None, None, None, None


def _row_blocks(t: Tensor, keys: Tensor) -> list[slice]:
    """Rows whose tile with all keys stays small."""
    elements = TILE_ELEMENTS.get(t.device.type, TILE_ELEMENTS["cuda"])
    height = max(1, elements // len(keys))
    return [slice(top, min(top + height, len(t))) for top in range(0, len(t), height)]


def _logits(t: Tensor, keys: Tensor, rows: slice, tau: float, own: int) -> Tensor:
    """Rows of t_i . t_j / tau, -inf where j is the anchor's own image."""
    logits = torch.mm(t[rows], keys.T).div_(tau)
    logits.diagonal(rows.start + own).fill_(-torch.inf)
    return logits
