"""The table of losses. With respect to similarities, the gradient of each is a scalar w_i times a vector:

    dL/ds_i+ = -w_i / tau_alpha        dL/ds_ij = w_i p^_ij(tau_alpha) / tau_alpha

that is, w_i times the gradient of the log-odds d_i(tau_alpha). They differ in w_i, in where the negatives come from,
and in the value that is returned. Embeddings (N, D) may be of any length and any floating type: each loss normalizes
them (unless told `normalize=False`) and computes in float32, or in float64 if given float64, also under autocast. A
caller that wants no gradient on keys detaches them. Backward can be run once, not differentiated again.

Arguments that the losses share:
    weight chooses w_i, by name: "sigmoid" (the paper's), "equal" (1: DCL), and, with in-batch negatives, an object that
        keeps numbers per image (`ImageMemory`, `ImageTemperatures`) together with `index`. See `weights`.
    normalize=False skips the normalization, which is a pass over the whole of a large dictionary.
    gather=True takes negatives from all processes and anchors from this one. The mean is that of all processes, and the
        gradients are right under DistributedDataParallel. Without a process group nothing changes. gather="ring" has
        the keys pass from process to process instead: the same to rounding, in memory that does not grow with them.
    stats, a dict, receives what there is to log of this step's anchors, detached and at no cost: "W" (the scalar w_i),
        "p_pos" (p_+ at the vector's temperature) and "r_pos" (w_i / sum w_i over all processes' anchors).
"""

import math

import torch
from torch import Tensor

from dualtemp.losses.arguments import (
    Gather,
    Reduction,
    require_keys,
    require_pairs,
    require_scalar_temperature,
    require_temperatures,
)
from dualtemp.losses.hardness import inter_anchor_weight, log_odds, positive_similarity
from dualtemp.losses.in_batch import in_batch_log_odds
from dualtemp.losses.in_batch_loss import in_batch_loss
from dualtemp.losses.odds import Odds, Weight
from dualtemp.losses.scalar_times_vector import Stats, record, reduced, scalar_times_vector
from dualtemp.losses.similarity import log_sum_exp, unit
from dualtemp.losses.temperature_schedule import AdaptiveTemperature
from dualtemp.losses.unit_vectors import require_no_transform
from dualtemp.losses.weights import dictionary_weight_named, tau_beta_of
from dualtemp.temperatures import TAU_ALPHA, TAU_BETA


def info_nce(
    q: Tensor,
    k_pos: Tensor,
    negatives: Tensor,
    tau: float = TAU_ALPHA,
    *,
    weight: str | Weight = "sigmoid",
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
        weight: "sigmoid" (default); "equal": every anchor weighs 1, and the value is d (DCL).
        normalize: False where all embeddings are unit vectors already.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W", "p_pos" and "r_pos", each (N,), for logging.
    """
    require_temperatures(tau, name="tau")
    q, k_pos, negatives = _with_dictionary(q, k_pos, negatives, "negatives", normalize)
    d = log_sum_exp(q, negatives, tau).alpha[0] - positive_similarity(q, k_pos) / tau
    return _weighed_loss(dictionary_weight_named(weight), Odds(d), reduction, stats)


def nt_xent(
    q: Tensor,
    k: Tensor,
    tau: float | AdaptiveTemperature = TAU_ALPHA,
    *,
    weight: str | Weight = "sigmoid",
    index: Tensor | None = None,
    normalize: bool = True,
    gather: Gather = False,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """-log p_+ with both views as anchors and as negatives (2N - 2 of them), the loss of SimCLR.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        tau: the one temperature, default 0.1; or an `AdaptiveTemperature`.
        weight: of an anchor, as in `dual_temperature`; with "sigmoid" (default) the value is -log p_+.
        index: whole numbers (N,), which images these are; for weights that are kept per image.
        normalize: False where all embeddings are unit vectors already.
        gather: negatives from all processes, gathered or ("ring") passing; the mean is over all processes.
        reduction: "mean" or "none": (N,), the mean of both anchors of a pair.
        stats: a dict that receives "W", "p_pos" and "r_pos", each (2, N), for logging.
    """
    return in_batch_loss(
        q,
        k,
        tau,
        None,
        weight=weight,
        index=index,
        both_directions=True,
        both_views=True,
        normalize=normalize,
        gather=gather,
        reduction=reduction,
        stats=stats,
        name="tau",
    )


def dual_temperature(
    q: Tensor,
    k: Tensor,
    tau_alpha: float | AdaptiveTemperature = TAU_ALPHA,
    tau_beta: float | AdaptiveTemperature | None = None,
    *,
    weight: str | Weight = "sigmoid",
    index: Tensor | None = None,
    both_directions: bool = True,
    both_views: bool = False,
    normalize: bool = True,
    gather: Gather = False,
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """W(tau_beta) / W(tau_alpha) x -log p_+ with in-batch negatives (eq:alter_imple), the loss of SimCo and SimMoCo.

    SimCo gives two embeddings that carry gradient; SimMoCo gives detached keys and `both_directions=False`.
    At tau_beta = tau_alpha it is InfoNCE. With other weights it is another loss of the family, whose value is its own:

        weight                      w_i                          value
        "sigmoid"                   W(tau_beta)                  W(tau_beta) / W(tau_alpha) x -log p_+
        "equal"                     1                            d: DCL
        `ImageMemory(...)`          G_i / u_i                    log u_i: SogCLR
        `ImageTemperatures(...)`    tau_i / tau_alpha G_i / u_i  tau_i / tau_alpha (log u_i + rho): iSogCLR, at tau_i

    Args:
        q: one view, (N, D).
        k: the other view, (N, D).
        tau_alpha: temperature of the vector (intra-anchor), default 0.1; finite; or an `AdaptiveTemperature`.
        tau_beta: temperature of the scalar (inter-anchor), default None: 1; inf weighs all anchors the same. The
            `AdaptiveTemperature` of tau_alpha, given again, ties both. Only the weight "sigmoid" uses tau_beta: with
            another it is an error.
        weight: of an anchor, default "sigmoid".
        index: whole numbers (N,), which images these are; for weights that are kept per image.
        both_directions: the mean of the losses with q and with k as anchors; False: q alone.
        both_views: negatives from the anchor's own view too; False: the other view's keys alone, as in the paper.
        normalize: False where all embeddings are unit vectors already.
        gather: negatives from all processes, gathered or ("ring") passing; the mean is over all processes.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W", "p_pos" and "r_pos", (N,) or with both directions (2, N), for logging.
    """
    return in_batch_loss(
        q,
        k,
        tau_alpha,
        tau_beta_of(weight, tau_beta, TAU_BETA),
        weight=weight,
        index=index,
        both_directions=both_directions,
        both_views=both_views,
        normalize=normalize,
        gather=gather,
        reduction=reduction,
        stats=stats,
    )


def decomposed(
    q: Tensor,
    k_pos: Tensor,
    vector_keys: Tensor,
    scalar_keys: Tensor,
    tau_alpha: float = TAU_ALPHA,
    tau_beta: float | None = None,
    *,
    weight: str | Weight = "sigmoid",
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
        weight: "sigmoid" (default), W(tau_beta) on scalar_keys; "equal": 1, whatever the scalar_keys.
        normalize: False where all embeddings are unit vectors already.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W", "p_pos" and "r_pos", each (N,), for logging.
    """
    weigh = dictionary_weight_named(weight)
    tau_beta = tau_beta_of(weight, tau_beta, tau_alpha)
    require_temperatures(tau_alpha, tau_beta)
    one_dictionary = scalar_keys is vector_keys
    require_pairs(q, k_pos, ("q", "k_pos"))
    require_keys(q, vector_keys, "vector_keys")
    require_keys(q, scalar_keys, "scalar_keys")
    q, k_pos, vector_keys, scalar_keys = unit(q, k_pos, vector_keys, scalar_keys, skip=not normalize)
    positive = positive_similarity(q, k_pos)
    keys = log_sum_exp(q, vector_keys, tau_alpha, tau_beta, vector=True)
    d_alpha = keys.alpha[0] - positive / tau_alpha
    d_beta = None
    if tau_beta is not None:
        with torch.no_grad():
            scalar = keys.beta[0] if one_dictionary else log_sum_exp(q, scalar_keys, tau_beta).beta[0]
        d_beta = scalar - positive.detach() / tau_beta
    weighed = weigh.weigh(Odds(d_alpha, d_beta))
    w = weighed.scalar
    loss = scalar_times_vector(w, d_alpha, value=-w * positive_similarity(q, k_pos - keys.vector) / tau_alpha)
    record(stats, d_alpha, weighed)
    return reduced(loss, reduction)


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
    weighed = dictionary_weight_named("equal").weigh(Odds(d))
    loss = scalar_times_vector(weighed.scalar, d, value=-positive_similarity(q, k_pos - keys.vector) / tau_alpha)
    record(stats, d, weighed)
    return reduced(loss, reduction)


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
    return reduced(positive_similarity(q, negatives.mean(0)) - positive_similarity(q, k_pos), reduction)


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
    return reduced(loss if weight is None else weight.detach() * loss, reduction)


def in_batch_weight(
    q: Tensor, k: Tensor, tau: float = TAU_ALPHA, *, normalize: bool = True, gather: Gather = False
) -> Tensor:
    """W_i(tau), (N,), detached: the inter-anchor weight of q_i against the other keys of the batch.

    Args:
        q: anchors or predictions, (N, D).
        k: the other view's keys, (N, D).
        tau: temperature, default 0.1; inf allowed.
        normalize: False where all embeddings are unit vectors already.
        gather: negatives from all processes, gathered or ("ring") passing.
    """
    require_scalar_temperature(tau, "tau")
    with torch.no_grad():
        q, k = _pair(q, k, normalize)
        d = in_batch_log_odds(q, k, tau, tau, both_directions=False, both_views=False, gather=gather).beta
        return inter_anchor_weight(d[0])


def cross_entropy(
    logits: Tensor,
    target: Tensor,
    tau_alpha: float = 1.0,
    tau_beta: float | None = None,
    *,
    weight: str | Weight = "sigmoid",
    reduction: Reduction = "mean",
    stats: Stats | None = None,
) -> Tensor:
    """Cross-entropy with two temperatures (eq:ce): the logits are similarities to one-hot keys, one per class.

    At tau_beta = tau_alpha it is cross-entropy; CE(DT) is tau_alpha = 1 and tau_beta = inf.

    Args:
        logits: (N, C), C >= 2. A class of -inf does not exist for the anchor; one without other classes has loss 0.
        target: class numbers, (N,), integers.
        tau_alpha: temperature of the vector, default 1; finite.
        tau_beta: temperature of the scalar of the weight "sigmoid", default None: 1; inf weighs all anchors the same.
        weight: "sigmoid" (default); "equal": every anchor weighs 1, and the value is d.
        reduction: "mean" or "none": (N,).
        stats: a dict that receives "W", "p_pos" and "r_pos", each (N,), for logging.
    """
    require_no_transform()
    weigh = dictionary_weight_named(weight)
    tau_beta = tau_beta_of(weight, tau_beta, 1.0)
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
    # On a device this check would wait for it in every step; there the gather below fails on invalid numbers itself.
    looks = not torch.compiler.is_compiling() and target.device.type == "cpu" and len(target)
    if looks and not 0 <= target.min() <= target.max() < classes:
        raise ValueError(
            f"target must hold class numbers from 0 to {classes - 1}, got {target.min()} to {target.max()}"
        )
    target = target[:, None].long()
    others = torch.arange(classes - 1, device=logits.device)
    others = others + (others >= target)  # (N, C - 1): every class but the target
    positive, negatives = logits.gather(1, target)[:, 0], logits.gather(1, others)
    absent = negatives == -math.inf
    d_alpha = log_odds(positive, negatives, tau_alpha, absent)
    d_beta = None if tau_beta is None else log_odds(positive.detach(), negatives.detach(), tau_beta, absent)
    return _weighed_loss(weigh, Odds(d_alpha, d_beta), reduction, stats, alone=absent.all(1))


def _pair(q: Tensor, k: Tensor, normalize: bool) -> list[Tensor]:
    require_pairs(q, k)
    return unit(q, k, skip=not normalize)


def _with_dictionary(q: Tensor, k_pos: Tensor, keys: Tensor, name: str, normalize: bool) -> list[Tensor]:
    require_pairs(q, k_pos, ("q", "k_pos"))
    require_keys(q, keys, name)
    return unit(q, k_pos, keys, skip=not normalize)


def _weighed_loss(
    weigh: Weight, odds: Odds, reduction: Reduction, stats: Stats | None, alone: Tensor | None = None
) -> Tensor:
    """alone: bool (N,), anchors without negatives, whose loss is 0."""
    weighed = weigh.weigh(odds)
    record(stats, odds.d, weighed, counted=None if alone is None else ~alone)
    loss = scalar_times_vector(weighed.scalar, odds.d, weighed.value)
    return reduced(loss if alone is None else loss.masked_fill(alone, 0.0), reduction)
