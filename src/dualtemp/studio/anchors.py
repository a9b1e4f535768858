"""Show the two temperatures at work on selected images: which anchors and which negatives carry the gradient.

Two views of each selected image, encoded by the map's encoder, give the anchor q and its positive key. Negatives are
the features of other images. Cosines are between features, as a loss without a projector would see them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.images import ImageSet
from dualtemp.data.loading.drawn_views import draw_views
from dualtemp.errors import UserError
from dualtemp.losses.hardness import (
    Similarities,
    entropy,
    inter_anchor_weight,
    intra_anchor_weights,
    log_odds,
    log_odds_of_embeddings,
    relative_penalty,
    similarities,
)
from dualtemp.studio.background import Progress
from dualtemp.studio.collection import Collection
from dualtemp.studio.dropped import space_encoder
from dualtemp.studio.space import Space

MOST_ANCHORS, KEYS = 256, 2_048
EPOCH = 10**6  # the epoch whose views are drawn: one that no run reaches
BATCH = 64


class Drawn(NamedTuple):
    """Image numbers of anchors (N,) and keys (K,), and their similarities, float64."""

    anchors: np.ndarray
    keys: np.ndarray
    s: Similarities


def draw_anchors(space: Space, images: Collection, numbers: Sequence[int], device: str) -> Drawn:
    """Encode two views of each of these images, and take evenly spaced other images as keys."""
    chosen = np.unique(np.asarray(numbers, np.int64))
    if len(chosen) > MOST_ANCHORS:
        chosen = chosen[:: -(-len(chosen) // MOST_ANCHORS)]
    q, k, read = _two_views(space, images, chosen, device)
    others = np.setdiff1d(np.arange(len(images)), chosen)
    if not len(others):
        raise UserError("all images are anchors, none is left for the keys: select fewer")
    keys = others[:: max(1, -(-len(others) // KEYS))]
    negatives = torch.from_numpy(space.features[keys])
    return Drawn(chosen[read], keys, similarities(q.double(), k.double(), negatives.double()))


def weigh(drawn: Drawn, tau_alpha: float, tau_beta: float) -> dict[str, Any]:
    """The share of the gradient that each anchor and each key carries at these temperatures.

    The gradient of anchor i is W_i(tau_beta) times the vector k_+ - sum_j p^_ij(tau_alpha) k_j: an anchor's share is
    r_i = W_i / sum W, a key's share is the mean of p^_ij weighted by r_i.
    """
    d = log_odds(drawn.s.positive, drawn.s.negatives, tau_beta)
    W, r = inter_anchor_weight(d), relative_penalty(d)
    p = intra_anchor_weights(drawn.s.negatives, tau_alpha)  # (N, K)
    carried = r @ p  # (K,)
    tenth = -(-len(r) // 10)
    return {
        "anchors": drawn.anchors.tolist(),
        "W": _short(W),
        "share": _short(r),
        "positive": _short(drawn.s.positive),
        "keys": drawn.keys.tolist(),
        "carried": _short(carried),
        "entropy": float(entropy(r)),
        "most_entropy": float(np.log(len(r))),
        "hardest_tenth": float(r.topk(tenth).values.sum()),
        "key_entropy": float(entropy(carried)),
        "effective_anchors": float(entropy(r).exp()),
        "effective_keys": float(entropy(carried).exp()),
    }


def weigh_all(space: Space, images: Collection, tau_beta: float, device: str, progress: Progress) -> np.ndarray:
    """W (N,) at tau_beta of every image as an anchor, against the positive keys of all others; NaN if unreadable."""
    q, k, read = _two_views(space, images, np.arange(len(images)), device, progress)
    W = np.full(len(images), np.nan, np.float32)
    W[read] = inter_anchor_weight(log_odds_of_embeddings(q, k, None, tau_beta)).numpy()
    return W


def _two_views(
    space: Space, images: Collection, chosen: np.ndarray, device: str, progress: Progress | None = None
) -> tuple[Tensor, Tensor, np.ndarray]:
    """q and positive keys (M, F) of the images that can be read, and which of `chosen` they are, int64 (M,)."""
    encoder = space_encoder(space, device)
    if images.images is None or (images.numbers[chosen] < 0).any():
        raise UserError("two views of an image need the image itself: start the studio with --data")
    shown: ImageSet = encoder.fitted(images.images.images)
    where = torch.from_numpy(images.numbers[chosen])
    q, k, read = [], [], []
    at = {number: place for place, number in enumerate(where.tolist())}
    for drawn in draw_views(shown, encoder.views, where.split(BATCH), [(EPOCH, 0), (EPOCH, 1)], encoder.device):
        q.append(encoder.of_views(drawn.views[0]))
        k.append(encoder.of_views(drawn.views[1]))
        read += [at[number] for number in drawn.index.tolist()]
        if progress is not None:
            progress(len(read), len(chosen))
    if len(read) < 1:
        raise UserError("none of these images can be read")
    return torch.cat(q), torch.cat(k), np.array(read, np.int64)


def _short(values: Tensor) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]
