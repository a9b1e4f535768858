"""Several positives per anchor, all that share its label."""

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.arguments import Reduction, require_gather_without_ring, require_pairs, require_scalar_temperature
from dualtemp.losses.exclusion import Exclusion
from dualtemp.losses.labeled_tiles import labeled_losses
from dualtemp.losses.similarity import unit
from dualtemp.losses.temperature import Temperature, require_temperature
from dualtemp.losses.unit_vectors import require_no_transform
from dualtemp.losses.weighted_mean import require_pair_weight, require_vector, weighted_mean
from dualtemp.temperatures import TAU_ALPHA


def supervised_contrastive(
    q: Tensor,
    k: Tensor | None,
    labels: Tensor,
    tau_alpha: Temperature = TAU_ALPHA,
    tau_beta: float | None = None,
    *,
    padding_mask: Tensor | None = None,
    pair_weight: Tensor | None = None,
    both_directions: bool = True,
    both_views: bool = True,
    normalize: bool = True,
    gather: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """Mean over an anchor's positives p of W_ip(tau_beta) / W_ip(tau_alpha) x -log p_ip: every key of its label is one.

    As it stands it is the supervised contrastive loss with the mean outside the logarithm (SupCon). Each positive is a
    pair of its own: its negatives are all other keys of the anchor, the other positives among them, and its log-odds
    d_ip = log sum_{j != p} exp(s_ij / tau) - s_ip / tau give its weight W_ip = sigmoid(d_ip). The gradient of the loss
    of anchor i is the mean over p of W_ip(tau_beta) times the gradient of d_ip(tau_alpha).

    An anchor without positives, or whose one positive is its only key, counts nothing, neither in the sum nor in the
    mean; if no anchor counts, the loss is 0.

    Args:
        q: one view, (N, D).
        k: the other view, (N, D); None: there is one view, and the other rows of q are the keys.
        labels: whole numbers, (N,).
        tau_alpha: temperature of the vector, default 0.1. A 0-d tensor receives its gradient too; a value that is not a
            finite number > 0 is a ValueError on the CPU, and is not looked at on a device.
        tau_beta: temperature of the scalar, inf allowed; default None: tied to tau_alpha, which is SupCon.
        padding_mask: bool (N,), True where the example is padding: neither an anchor nor a key.
        pair_weight: finite numbers >= 0, (N,), constants, for the pairs of anchor i: the mean is sum w_i L_i / sum w_i;
            default None: 1.
        both_directions: the views of k are anchors too; False: those of q alone. Without k it does not matter.
        both_views: keys of the anchor's own view too, as in SupCon; False: of the other view alone, as between two
            towers. Without k it does not matter.
        normalize: False where all embeddings are unit vectors already.
        gather: keys from all processes; the mean is over all processes.
        reduction: "mean" or "none": (N,), w_i L_i, the mean of both views as anchors.

    Example:
        >>> loss = supervised_contrastive(projector(f(view1)), projector(f(view2)), labels, 0.1)  # doctest: +SKIP
    """
    require_no_transform()
    require_temperature(tau_alpha, "tau_alpha")
    if tau_beta is not None:
        require_scalar_temperature(tau_beta)
    require_gather_without_ring(gather)
    require_pairs(q, q if k is None else k)
    require_vector(labels, q, "labels", "whole")
    require_vector(padding_mask, q, "padding_mask", "bool")
    require_pair_weight(pair_weight, q)
    labels = labels.long()  # what every backend gathers
    views = unit(*([q] if k is None else [q, k]), skip=not normalize)
    n, together = q.shape[0], gather and distributed.world_size() > 1
    first = distributed.rank() * n * len(views) if together else 0  # place of this process's rows among the keys
    # Rows of all views, of one process after the other.
    local = torch.cat(views) if len(views) > 1 else views[0]
    rows, rows_labels, rows_padding = local, labels.repeat(len(views)), _repeated(padding_mask, len(views))
    if together:
        rows, rows_labels = distributed.gather(local), distributed.gather(rows_labels, equal=True)
        rows_padding = None if rows_padding is None else distributed.gather(rows_padding, equal=True)
    if k is None or both_views:
        anchors = 2 if k is not None and both_directions else 1
        loss, counted = labeled_losses(
            local if anchors == len(views) else views[0],
            rows,
            labels.repeat(anchors),
            rows_labels,
            tau_alpha,
            tau_beta,
            own=first,
            excluded=Exclusion(padded_anchors=_repeated(padding_mask, anchors), padded_keys=rows_padding),
        )
        loss, counted = loss.view(anchors, n), counted.view(anchors, n)
    else:
        of_views = rows.view(-1, 2, n, rows.shape[1])  # (processes, views, N, D)
        key_labels = rows_labels.view(-1, 2, n)[:, 0].reshape(-1)
        padded = None if rows_padding is None else rows_padding.view(-1, 2, n)[:, 0].reshape(-1)
        results = [
            labeled_losses(
                anchors,
                of_views[:, 1 - view].reshape(-1, rows.shape[1]),
                labels,
                key_labels,
                tau_alpha,
                tau_beta,
                excluded=Exclusion(padded_anchors=padding_mask, padded_keys=padded),
            )
            for view, anchors in enumerate(views[: 1 + both_directions])
        ]
        loss, counted = (torch.stack(x) for x in zip(*results, strict=True))
    return weighted_mean(loss, counted, pair_weight, reduction, gather)


def _repeated(x: Tensor | None, times: int) -> Tensor | None:
    return None if x is None else x.repeat(times)
