"""The table of losses. With respect to similarities, the gradient of each is a scalar w_i times a vector:

    dL/ds_i+ = -w_i / tau_alpha        dL/ds_ij = w_i p^_ij(tau_alpha) / tau_alpha

that is, w_i times the gradient of the log-odds d_i(tau_alpha). They differ in w_i, in where the negatives come from,
and in the value that is returned. Embeddings (N, D) may be of any length and any floating type: each loss normalises
them (unless told `normalize=False`) and computes in float32, or in float64 if given float64, also under autocast. A
caller that wants no gradient on keys detaches them. Backward can be run once, not differentiated again.

Three arguments that the losses share:
    normalize=False skips the normalisation, which is a pass over the whole of a large dictionary.
    gather=True takes negatives from all processes and anchors from this one. The mean is that of all processes, and the
        gradients are right under DistributedDataParallel. Without a process group nothing changes. gather="ring" has
        the keys pass from process to process instead: the same to rounding, in memory that does not grow with them.
    stats, a dict, receives what there is to log of this step's anchors, detached and at no cost: "W" (the scalar w_i),
        "p_pos" (p_+ at tau_alpha) and "r_pos" (r_+, which sums to 1 over all processes' anchors).
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp import distributed
from dualtemp.first_derivative import first_derivative_only
from dualtemp.losses.arguments import (
    Gather,
    Reduction,
    require_keys,
    require_pairs,
    require_reduction,
    require_temperatures,
)
from dualtemp.losses.hardness import (
    inter_anchor_weight,
    log_odds,
    positive_probability,
    positive_similarity,
    relative_penalty,
)
from dualtemp.losses.in_batch import in_batch_log_odds
from dualtemp.losses.similarity import log_sum_exp, unit
from dualtemp.temperatures import TAU_ALPHA, TAU_BETA

Stats = dict[str, Tensor]


def info_nce(
    q: Tensor,
    k_pos: Tensor,
    negatives: Tensor,
    tau: float = TAU_ALPHA,
    *,
    normalize: bool = True,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """-log p_+ over a dictionary (eq:infonce), the loss of MoCo v2.

    Args:
        q: anchors, (N, D).
        k_pos: their positive keys, (N, D).
        negatives: keys shared by all anchors, (K, D).
        tau: the one temperature, default 0.1.
        normalize: False where all embeddings are unit vectors already.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W", "p_pos" and "r_pos", each (N,), for logging.
    """
    require_temperatures(tau, name="tau")
    q, k_pos, negatives = _with_dictionary(q, k_pos, negatives, "negatives", normalize)
    d = log_sum_exp(q, negatives, tau).alpha[0] - positive_similarity(q, k_pos) / tau
    loss = scalar_times_vector(inter_anchor_weight(d), d, value=-F.logsigmoid(-d))
    _record(stats, d, d)
    return _reduced(loss, reduction)


def nt_xent(
    q: Tensor,
    k: Tensor,
    tau: float = TAU_ALPHA,
    *,
    normalize: bool = True,
    gather: Gather = False,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """-log p_+ with both views as anchors and as negatives (2N - 2 of them), the loss of SimCLR.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        tau: the one temperature, default 0.1.
        normalize: False where all embeddings are unit vectors already.
        gather: negatives from all processes, gathered or ("ring") passing; the mean is over all processes.
        reduction: "mean" or "none": (N,), the mean of both anchors of a pair.
        stats: a dict that receives "W", "p_pos" and "r_pos", each (2, N), for logging.
    """
    require_temperatures(tau, name="tau")
    q, k = _pair(q, k, normalize)
    d, _ = in_batch_log_odds(q, k, tau, tau, both_directions=True, both_views=True, gather=gather)
    loss = scalar_times_vector(inter_anchor_weight(d), d, value=-F.logsigmoid(-d))
    _record(stats, d, d, gather)
    return _reduced(loss, reduction, gather)


def dual_temperature(
    q: Tensor,
    k: Tensor,
    tau_alpha: float = TAU_ALPHA,
    tau_beta: float = TAU_BETA,
    *,
    both_directions: bool = True,
    both_views: bool = False,
    normalize: bool = True,
    gather: Gather = False,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """W(tau_beta) / W(tau_alpha) x -log p_+ with in-batch negatives (eq:alter_imple), the loss of SimCo and SimMoCo.

    SimCo gives two embeddings that carry gradient; SimMoCo gives detached keys and `both_directions=False`.
    At tau_beta = tau_alpha it is InfoNCE.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        tau_alpha: temperature of the vector (intra-anchor), default 0.1; finite.
        tau_beta: temperature of the scalar (inter-anchor), default 1; inf weighs all anchors the same.
        both_directions: the mean of the losses with q and with k as anchors; False: q alone.
        both_views: negatives from the anchor's own view too; False: the other view's keys alone, as in the paper.
        normalize: False where all embeddings are unit vectors already.
        gather: negatives from all processes, gathered or ("ring") passing; the mean is over all processes.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W", "p_pos" and "r_pos", (N,) or with both directions (2, N), for logging.
    """
    require_temperatures(tau_alpha, tau_beta)
    q, k = _pair(q, k, normalize)
    d_alpha, d_beta = in_batch_log_odds(
        q, k, tau_alpha, tau_beta, both_directions=both_directions, both_views=both_views, gather=gather
    )
    loss = _dual_temperature(d_alpha, d_beta)
    if not both_directions:
        d_alpha, d_beta = d_alpha[0], d_beta[0]
    _record(stats, d_alpha, d_beta, gather)
    return _reduced(loss, reduction, gather)


def decomposed(
    q: Tensor,
    k_pos: Tensor,
    vector_keys: Tensor,
    scalar_keys: Tensor,
    tau_alpha: float = TAU_ALPHA,
    tau_beta: float | None = None,
    *,
    normalize: bool = True,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """-w_i q . (k_+ - sum_j p^_ij k_j) / tau_alpha with independent dictionaries (eq:infonce_nss_equiva).

    Where both dictionaries are the same and tau_beta is tied, its gradient is that of `info_nce`.

    Args:
        q: anchors, (N, D).
        k_pos: their positive keys, (N, D).
        vector_keys: dictionary of the intra-anchor weights p^_ij, (K_vector, D).
        scalar_keys: dictionary of the inter-anchor weight w_i, (K_scalar, D); never receives a gradient.
        tau_alpha: temperature of the vector, default 0.1; finite.
        tau_beta: temperature of the scalar; inf allowed; default None: tied to tau_alpha.
        normalize: False where all embeddings are unit vectors already.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W", "p_pos" and "r_pos", each (N,), for logging.
    """
    tau_beta = tau_alpha if tau_beta is None else tau_beta
    require_temperatures(tau_alpha, tau_beta)
    one_dictionary = scalar_keys is vector_keys
    require_pairs(q, k_pos, ("q", "k_pos"))
    require_keys(q, vector_keys, "vector_keys")
    require_keys(q, scalar_keys, "scalar_keys")
    q, k_pos, vector_keys, scalar_keys = unit(q, k_pos, vector_keys, scalar_keys, skip=not normalize)
    positive = positive_similarity(q, k_pos)
    keys = log_sum_exp(q, vector_keys, tau_alpha, tau_beta, vector=True)
    with torch.no_grad():
        scalar = keys.beta[0] if one_dictionary else log_sum_exp(q, scalar_keys, tau_beta).beta[0]
    d_alpha = keys.alpha[0] - positive / tau_alpha
    d_beta = scalar - positive.detach() / tau_beta
    w = inter_anchor_weight(d_beta)
    loss = scalar_times_vector(w, d_alpha, value=-w * positive_similarity(q, k_pos - keys.vector) / tau_alpha)
    _record(stats, d_alpha, d_beta)
    return _reduced(loss, reduction)


def equal_anchors(
    q: Tensor,
    k_pos: Tensor,
    negatives: Tensor,
    tau_alpha: float = TAU_ALPHA,
    *,
    normalize: bool = True,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """-q . (k_+ - sum_j p^_ij k_j) / tau_alpha: every anchor weighs 1 (eq:loss_cl).

    Args:
        q: anchors, (N, D).
        k_pos: their positive keys, (N, D).
        negatives: keys shared by all anchors, (K, D).
        tau_alpha: temperature of the vector, default 0.1.
        normalize: False where all embeddings are unit vectors already.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W" (here 1), "p_pos" and "r_pos", each (N,), for logging.
    """
    require_temperatures(tau_alpha)
    q, k_pos, negatives = _with_dictionary(q, k_pos, negatives, "negatives", normalize)
    positive = positive_similarity(q, k_pos)
    keys = log_sum_exp(q, negatives, tau_alpha, vector=True)
    d = keys.alpha[0] - positive / tau_alpha
    loss = scalar_times_vector(torch.ones_like(d), d, value=-positive_similarity(q, k_pos - keys.vector) / tau_alpha)
    if stats is not None:
        one = torch.ones_like(d)
        stats.update(W=one, p_pos=positive_probability(d.detach()), r_pos=one / len(d))
    return _reduced(loss, reduction)


def simple(
    q: Tensor, k_pos: Tensor, negatives: Tensor, *, normalize: bool = True, reduction: Reduction = "mean"
) -> Tensor:
    """-q . k_+ + mean_j q . k_j: no hardness-awareness, no temperature (eq:simple).

    Args:
        q: anchors, (N, D).
        k_pos: their positive keys, (N, D).
        negatives: keys shared by all anchors, (K, D).
        normalize: False where all embeddings are unit vectors already.
        reduction: "mean" or "none": (N,).
    """
    q, k_pos, negatives = _with_dictionary(q, k_pos, negatives, "negatives", normalize)
    # The mean of the similarities is the similarity to the mean key.
    return _reduced(positive_similarity(q, negatives.mean(0)) - positive_similarity(q, k_pos), reduction)


def negative_cosine(
    p: Tensor, k: Tensor, weight: Tensor | None = None, *, normalize: bool = True, reduction: Reduction = "mean"
) -> Tensor:
    """-w_i p_i . k_i, the loss of BYOL and SimSiam (eq:loss_noncl).

    Args:
        p: predictions, (N, D).
        k: target keys, (N, D); the frameworks detach them.
        weight: w_i, (N,), used as a constant; default None: 1. `in_batch_weight(p, k)` is inter-anchor hardness.
        normalize: False where all embeddings are unit vectors already.
        reduction: "mean" or "none": (N,).
    """
    require_pairs(p, k, ("p", "k"))
    if weight is not None and (weight.shape != p.shape[:1] or weight.device != p.device):
        raise ValueError(
            f"weight must be of shape ({len(p)},) on {p.device}, got {tuple(weight.shape)} on {weight.device}"
        )
    p, k = unit(p, k, skip=not normalize)
    loss = -positive_similarity(p, k)
    return _reduced(loss if weight is None else weight.detach() * loss, reduction)


def in_batch_weight(
    q: Tensor, k: Tensor, tau: float = TAU_ALPHA, *, normalize: bool = True, gather: Gather = False
) -> Tensor:
    """W_i(tau), (N,), detached: the inter-anchor weight of q_i against the other keys of the batch.

    Args:
        q: anchors or predictions, (N, D).
        k: the other view's keys, (N, D).
        tau: temperature, default 0.1; inf allowed.
        normalize: False where all embeddings are unit vectors already.
        gather: negatives from all processes, gathered or ("ring") passing; the mean is over all processes.
    """
    require_temperatures(1.0, tau)
    with torch.no_grad():
        q, k = _pair(q, k, normalize)
        d = in_batch_log_odds(q, k, tau, tau, both_directions=False, both_views=False, gather=gather).beta
        return inter_anchor_weight(d[0])


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    tau_alpha: float = 1.0,
    tau_beta: float = 1.0,
    *,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """Cross-entropy with two temperatures (eq:ce): the logits are similarities to one-hot keys, one per class.

    At tau_beta = tau_alpha it is cross-entropy; CE(DT) is tau_alpha = 1 and tau_beta = inf.

    Args:
        logits: (N, C), C >= 2.
        target: class numbers, (N,), integers.
        tau_alpha: temperature of the vector, default 1; finite.
        tau_beta: temperature of the scalar, default 1; inf weighs all anchors the same.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W", "p_pos" and "r_pos", each (N,), for logging.
    """
    require_temperatures(tau_alpha, tau_beta)
    if logits.ndim != 2 or not logits.is_floating_point() or logits.shape[1] < 2:
        raise ValueError(
            f"logits must be a floating-point (N, C >= 2) matrix, got {logits.dtype} {tuple(logits.shape)}"
        )
    if target.shape != logits.shape[:1] or target.is_floating_point() or target.device != logits.device:
        raise ValueError(
            f"target must hold {len(logits)} class numbers on {logits.device}, got {target.dtype} "
            f"{tuple(target.shape)} on {target.device}"
        )
    logits = logits if logits.dtype == torch.float64 else logits.float()
    classes = logits.shape[1]
    # On a device such a look would wait for it, in every step; there the gather below refuses other numbers itself.
    if target.device.type == "cpu" and len(target) and not 0 <= target.min() <= target.max() < classes:
        raise ValueError(
            f"target must hold class numbers from 0 to {classes - 1}, got {target.min()} to {target.max()}"
        )
    target = target[:, None].long()
    others = torch.arange(classes - 1, device=logits.device)
    others = others + (others >= target)  # (N, C - 1): every class but the target
    positive, negatives = logits.gather(1, target)[:, 0], logits.gather(1, others)
    d_alpha = log_odds(positive, negatives, tau_alpha)
    d_beta = log_odds(positive.detach(), negatives.detach(), tau_beta)
    _record(stats, d_alpha, d_beta)
    return _reduced(_dual_temperature(d_alpha, d_beta), reduction)


def scalar_times_vector(scalar: Tensor, d: Tensor, value: Tensor) -> Tensor:
    """A loss whose value is `value` and whose gradient is `scalar` times that of the log-odds `d`; all (..., N)."""
    return _ScalarTimesVector.apply(scalar.detach(), d, value.detach())  # pyright: ignore


class _ScalarTimesVector(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scalar: Tensor, d: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(scalar)
        return value.clone()

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        (scalar,) = ctx.saved_tensors
        return None, gradient * scalar, None


def _dual_temperature(d_alpha: Tensor, d_beta: Tensor) -> Tensor:
    """W_beta x softplus(d_alpha) / sigmoid(d_alpha): W_beta / W_alpha x -log p_+, without dividing by W_alpha."""
    w = inter_anchor_weight(d_beta)
    # 1 / sigmoid(d) = 1 + e^-d. Below log(eps) the quotient is 1 to the last digit, and e^-d would overflow.
    d = d_alpha.detach().clamp(min=math.log(torch.finfo(d_alpha.dtype).eps))
    return scalar_times_vector(w, d_alpha, value=w * -F.logsigmoid(-d) * (1 + torch.exp(-d)))


def _pair(q: Tensor, k: Tensor, normalize: bool) -> list[Tensor]:
    require_pairs(q, k)
    return unit(q, k, skip=not normalize)


def _with_dictionary(q: Tensor, k_pos: Tensor, keys: Tensor, name: str, normalize: bool) -> list[Tensor]:
    require_pairs(q, k_pos, ("q", "k_pos"))
    require_keys(q, keys, name)
    return unit(q, k_pos, keys, skip=not normalize)


def _reduced(loss: Tensor, reduction: Reduction, gather: Gather = False) -> Tensor:
    require_reduction(reduction)
    if reduction == "none":
        return loss if loss.ndim == 1 else loss.mean(0)  # both anchors of a pair
    return distributed.global_mean(loss.mean()) if gather else loss.mean()


def _record(stats: Stats | None, d_alpha: Tensor, d_beta: Tensor, gather: Gather = False) -> None:
    """Write what there is to log of the anchors, (N,) or (2, N), into `stats`."""
    if stats is None:
        return
    d_alpha, d_beta = d_alpha.detach(), d_beta.detach()
    stats["W"], stats["p_pos"] = inter_anchor_weight(d_beta), positive_probability(d_alpha)
    if not gather or distributed.world_size() == 1:
        stats["r_pos"] = relative_penalty(d_beta)
        return
    everyone = distributed.gather(d_beta.transpose(0, -1), equal=True).transpose(0, -1)
    n = d_beta.shape[-1]
    stats["r_pos"] = relative_penalty(everyone)[..., distributed.rank() * n : (distributed.rank() + 1) * n]
