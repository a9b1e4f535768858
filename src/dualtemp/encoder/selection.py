"""Ways to select the images to label: functions of features, arrays in and arrays out.

    select_random      any n
    select_diverse     n that represent all: every image should have one of them nearby (facility location, greedily)
    select_farthest    n that are far from each other (k-center greedy; Sener, Savarese 2018)
    select_typical     from each cluster its most typical (TypiClust; Hacohen et al. 2022)
    select_hardest     the largest anchor weights W
    select_uncertain   those that a classifier on the labels so far is least sure of

Features (N, F) are numpy arrays or tensors of any norm; similarity is the cosine. `chosen` are images that have a
label already: they are not selected again, and what they cover counts as covered. No N x N matrix is built: each
function states its work and memory. All return a Selection, the most wanted first.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.data.subset import random_keys
from dualtemp.encoder.clusters import cluster
from dualtemp.errors import UserError
from dualtemp.evaluation.few_shot import PENALTY
from dualtemp.evaluation.probe import logistic_regression, standardize
from dualtemp.losses.hardness import inter_anchor_weight, log_odds_of_embeddings
from dualtemp.losses.similarity import true_precision, unit

Array = np.ndarray | Tensor
Numbers = Sequence[int] | np.ndarray | Tensor
Progress = Callable[[int, int], None]  # called with the number of images selected, and of all to be selected

SELECTED = 5  # number of the random draw, the same as data.subset.FOLDS; a change would change every selection
LANDMARKS = 4096  # fewest images that represent all in `select_diverse`
TRIED = 2.3  # log 10: 2.3 N / n candidates a step find one within 10 % of the best gain (Mirzasoleiman et al. 2015)
MOST_CLUSTERS = 500  # as in TypiClust
NEIGHBORS, SMALLEST = 20, 5  # as in TypiClust; clusters of fewer than SMALLEST images come last
MEMBERS = 4096  # most images of a cluster among which the nearest are searched
ANCHORS = 256  # anchors of a batch in `anchor_weights`
TILE = 1 << 22  # similarities at once


class Selection(NamedTuple):
    """Numbers int64 (n,) of the selected images, the most wanted first, and their scores float32 (n,)."""

    index: np.ndarray
    score: np.ndarray


def select_random(count: int, n: int, *, chosen: Numbers = (), seed: int = 0) -> Selection:
    """Any n of `count` images. With the same seed, a larger selection begins with the smaller ones. score: 0."""
    free = _free(count, n, chosen)
    order = np.argsort(random_keys(seed, SELECTED, count)[free], kind="stable")[:n]
    return Selection(free[order], np.zeros(n, np.float32))


@torch.no_grad()
def select_diverse(
    features: Array, n: int, *, chosen: Numbers = (), seed: int = 0, progress: Progress | None = None
) -> Selection:
    """The n images that together are most similar to all: greedy maximum of sum_i max_(j selected) (1 + s_ij) / 2.

    Up to 4,096 images this is the greedy algorithm, within 1 - 1/e of the optimum. Of more, the sum is over landmarks
    (4,096 or 4 n images, whichever is more, drawn by the seed), and each step tries 2.3 N / n candidates (stochastic
    greedy): work 2.3 N x landmarks, memory N.

    score: the mean gain over landmarks, descending.
    """
    z, free = _unit(features), _free(len(features), n, chosen)
    taken = np.zeros(len(z), bool)
    taken[_numbers(chosen)] = True
    keys = random_keys(seed, SELECTED, 2 * len(z))
    landmarks = np.sort(np.argsort(keys[: len(z)], kind="stable")[: max(LANDMARKS, 4 * n)])
    shown = z[torch.from_numpy(landmarks).to(z.device)]  # (L, F)
    best = torch.zeros(len(shown), device=z.device)  # (1 + s) / 2 with the nearest selected
    for part in torch.from_numpy(np.flatnonzero(taken)).split(max(1, TILE // len(shown))):
        best = torch.maximum(best, _nearness(shown, z[part.to(z.device)]).amax(1)) if len(part) else best
    whole = _nearness(shown, z).T.contiguous() if len(z) <= LANDMARKS else None  # (N, L)
    share = min(len(free), max(1, -(-int(TRIED * len(free)) // max(n, 1))))
    order = free[np.argsort(keys[len(z) :][free], kind="stable")]  # candidates come in this order, around and around
    index, score, at = [], [], 0
    while len(index) < n:
        if whole is None:
            tried, at = _next_candidates(order, taken, share, at)
        else:
            tried = np.flatnonzero(~taken)
        gains = _gains(z, shown, best, tried, whole)
        place = int(gains.argmax())
        image = int(tried[place])
        near = whole[image] if whole is not None else _nearness(shown, z[image : image + 1])[:, 0]
        best = torch.maximum(best, near)
        taken[image] = True
        index.append(image)
        score.append(float(gains[place]))
        if progress is not None:
            progress(len(index), n)
    return Selection(np.array(index, np.int64), np.array(score, np.float32))


@torch.no_grad()
def select_farthest(
    features: Array, n: int, *, chosen: Numbers = (), seed: int = 0, progress: Progress | None = None
) -> Selection:
    """The n images far from each other: each next one is the farthest from all before it (k-center greedy).

    The largest distance from an image to the nearest selected one is at most twice the optimum. If nothing is chosen
    yet, the first image is drawn by the seed; of equally far images the earlier is taken. Outliers come first: read
    docs/select.md before you use it. Work N x (n + chosen), memory N.

    score: the distance |z_i - z_j| to the nearest image selected before; 2, the largest possible, for the first.
    """
    z, free = _unit(features), _free(len(features), n, chosen)
    far = torch.full((len(z),), 4.0, device=z.device)
    known = torch.from_numpy(_numbers(chosen)).to(z.device)
    for part in known.split(max(1, TILE // max(1, len(z)))):
        if len(part):
            far = torch.minimum(far, (2 - 2 * _cosine(z, z[part])).amin(1))
    open_ = torch.zeros(len(z), dtype=torch.bool, device=z.device)
    open_[torch.from_numpy(free).to(z.device)] = True
    index, score = [], []
    while len(index) < n:
        if not index and not len(known):
            image = int(free[np.argmin(random_keys(seed, SELECTED, len(z))[free])])
        else:
            image = int(torch.where(open_, far, -1.0).argmax())
        index.append(image)
        score.append(max(0.0, float(far[image])) ** 0.5)
        open_[image] = False
        far = torch.minimum(far, 2 - 2 * _cosine(z, z[image : image + 1])[:, 0])
        if progress is not None:
            progress(len(index), n)
    return Selection(np.array(index, np.int64), np.array(score, np.float32))


@torch.no_grad()
def select_typical(
    features: Array, n: int, *, chosen: Numbers = (), seed: int = 0, progress: Progress | None = None
) -> Selection:
    """The most typical image of each cluster: clusters with the fewest labels first, of these the largest first.

    Clusters of fewer than five images come last: they are outliers.
    There are n + chosen clusters, at most 500 and at most one for every four images. Typicality is 1 / mean distance to
    the 20 nearest among at most 4,096 images of the cluster. Work N x clusters, memory N.

    score: the typicality.
    """
    z, known = _unit(features), _numbers(chosen)
    free = _free(len(z), n, chosen)
    if not n:
        return Selection(np.zeros(0, np.int64), np.zeros(0, np.float32))
    k = max(1, min(n + len(known), MOST_CLUSTERS, len(z) // 4))
    of_image = cluster(z, k, seed=seed).of_image.cpu().numpy()
    count = int(of_image.max()) + 1
    sizes, labeled = np.bincount(of_image, minlength=count), np.bincount(of_image[known], minlength=count)
    open_ = np.zeros(len(z), bool)
    open_[free] = True
    score = np.zeros(len(z), np.float32)
    waiting: list[list[int]] = []  # of each cluster, the least typical first
    for number, members in enumerate(np.split(np.argsort(of_image, kind="stable"), np.cumsum(sizes)[:-1])):
        score[members] = _typicality(z, members, seed)
        here = members[open_[members]]
        waiting.append(here[np.lexsort((-here, score[here]))].tolist())
        if progress is not None:
            progress(n * (number + 1) // count, n)
    index: list[int] = []
    while len(index) < n:
        number = min(
            (c for c in range(count) if waiting[c]), key=lambda c: (sizes[c] < SMALLEST, labeled[c], -sizes[c], c)
        )
        index.append(waiting[number].pop())
        labeled[number] += 1
    return Selection(np.array(index, np.int64), score[index])


def select_hardest(weights: Array, n: int, *, chosen: Numbers = ()) -> Selection:
    """The n images with the largest anchor weights W (N,), as `anchor_weights` computes them. score: W."""
    w = np.asarray(weights, np.float32)
    return _largest(w, _free(len(w), n, chosen), n)


@torch.no_grad()
def anchor_weights(first: Array, second: Array, *, tau: float = 0.1, batch: int = ANCHORS, seed: int = 0) -> np.ndarray:
    """W_i(tau), float32 (N,), from features (N, F) of two views of each image: how hard the encoder finds each image.

    Negatives are the second views of the other images of a batch. Batches are drawn by the seed; the last is filled up.
    """
    q, k = _unit(first), _unit(second)
    if q.shape != k.shape or len(q) < 2:
        raise ValueError(f"anchor_weights: give two views of at least two images, got {len(q)} and {len(k)}")
    order = torch.from_numpy(np.argsort(random_keys(seed, SELECTED, len(q)), kind="stable")).to(q.device)
    size = min(batch, len(q))
    w = torch.empty(len(q), device=q.device)
    for start in range(0, len(q), size):
        rows = order[min(start, len(q) - size) :][:size]
        w[rows] = inter_anchor_weight(log_odds_of_embeddings(q[rows], k[rows], None, tau)).float()
    return w.cpu().numpy()


def select_uncertain(features: Array, labels: Array, n: int, *, by: str = "margin") -> Selection:
    """The n images without a label that a linear classifier, fitted to the others, is least sure of.

    Args:
        features: (N, F).
        labels: int (N,), -1 where there is none; at least two classes are needed.
        n: how many.
        by: "margin", 1 - (p of the first class - p of the second), or "entropy" of p, in nats. It is the score.
    """
    known = np.asarray(labels).astype(np.int64)
    if len(known) != len(features):
        raise ValueError(f"select_uncertain: {len(features)} features and {len(known)} labels; give one each, or -1")
    if by not in ("margin", "entropy"):
        raise ValueError(f"select_uncertain: by is margin or entropy, got {by!r}")
    free = _free(len(known), n, np.flatnonzero(known >= 0))
    p = class_probabilities(features, known)
    with torch.no_grad():
        if by == "entropy":
            doubt = torch.special.entr(p).sum(1)
        else:
            best = p.topk(2, dim=1).values
            doubt = 1 - (best[:, 0] - best[:, 1])
    return _largest(doubt.float().cpu().numpy(), free, n)


def class_probabilities(features: Array, labels: np.ndarray) -> Tensor:
    """Probabilities (N, C) of the C classes that occur, ascending, by logistic regression on the given labels."""
    classes, numbers = np.unique(labels[labels >= 0], return_inverse=True)
    if len(classes) < 2:
        raise UserError(f"uncertain needs labels of at least two classes, there are {len(classes)}: label some first")
    x = _tensor(features)
    x, _ = standardize(x, x[:1])
    at = torch.from_numpy(np.flatnonzero(labels >= 0)).to(x.device)
    truth = torch.from_numpy(numbers.astype(np.int64)).to(x.device)
    fit = logistic_regression(x[at], truth, len(classes), PENALTY * x.shape[1])
    with torch.no_grad():
        return F.linear(x, *fit).softmax(1)


def _largest(scores: np.ndarray, free: np.ndarray, n: int) -> Selection:
    """The n free images with the largest scores; of equal scores the earlier image, NaN last."""
    order = free[np.argsort(-np.nan_to_num(scores[free], nan=-np.inf), kind="stable")[:n]]
    return Selection(order, scores[order])


def _typicality(z: Tensor, members: np.ndarray, seed: int) -> np.ndarray:
    if len(members) == 1:
        return np.zeros(1, np.float32)  # an image alone is not typical of anything
    drawn = members[np.sort(np.argsort(random_keys(seed, SELECTED, len(members)), kind="stable")[:MEMBERS])]
    rows, others = z[torch.from_numpy(members).to(z.device)], z[torch.from_numpy(drawn).to(z.device)]
    k = min(NEIGHBORS + 1, len(drawn))  # one more, since the image itself may be among them, at distance 0
    own = torch.from_numpy(np.isin(members, drawn)).to(z.device)
    found = []
    for part, itself in zip(*(x.split(max(1, TILE // len(drawn))) for x in (rows, own)), strict=True):
        s = _cosine(part, others).topk(k, dim=1).values
        distance = (2 - 2 * s).clamp_min(0).sqrt()
        total = torch.where(itself, distance[:, 1:].sum(1), distance[:, : max(1, k - 1)].sum(1))
        found.append(1 / (total / max(1, k - 1)).clamp_min(1e-6))
    return torch.cat(found).cpu().numpy()


def _gains(z: Tensor, shown: Tensor, best: Tensor, tried: np.ndarray, whole: Tensor | None) -> Tensor:
    """Mean gain of the landmarks for each candidate."""
    found = []
    for part in torch.from_numpy(tried).split(max(1, TILE // len(shown))):
        near = whole[part] if whole is not None else _nearness(z[part.to(z.device)], shown)
        found.append((near - best).clamp_min_(0).mean(1))
    return torch.cat(found)


def _next_candidates(order: np.ndarray, taken: np.ndarray, share: int, at: int) -> tuple[np.ndarray, int]:
    """The next `share` candidates of the order from place `at` on, without taken ones, and where to continue."""
    while True:
        tried = order[(at + np.arange(share)) % len(order)]
        at = (at + share) % len(order)
        if len(tried := tried[~taken[tried]]):
            return tried, at


def _nearness(a: Tensor, b: Tensor) -> Tensor:
    """(1 + s) / 2, from 0 to 1."""
    return _cosine(a, b).add_(1).mul_(0.5)


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    with true_precision(a.device):
        return a @ b.T


def _tensor(features: Array) -> Tensor:
    x = features if isinstance(features, Tensor) else torch.from_numpy(np.ascontiguousarray(features))
    if x.ndim != 2 or not x.shape[1]:
        raise ValueError(f"features are a table (N, F), got {tuple(x.shape)}")
    x = x.detach().float()
    if not bool(torch.isfinite(x).all()):
        raise ValueError("features that are not finite: leave these images out")
    return x


def _unit(features: Array) -> Tensor:
    return unit(_tensor(features))[0]


def _numbers(chosen: Numbers) -> np.ndarray:
    return np.unique(np.asarray(chosen, dtype=np.int64))


def _free(count: int, n: int, chosen: Numbers) -> np.ndarray:
    """Images that may be selected; there must be n of them."""
    known = _numbers(chosen)
    if len(known) and not 0 <= known[0] <= known[-1] < count:
        raise ValueError(f"chosen images are numbers from 0 to {count - 1}, got {known[0]} to {known[-1]}")
    if not 0 <= n <= count - len(known):
        without = f"{count - len(known):,} images" + (" without a label" if len(known) else "")
        raise UserError(f"n is {n:,}, but there are {without} to select from: give a number up to that")
    return np.setdiff1d(np.arange(count), known)
