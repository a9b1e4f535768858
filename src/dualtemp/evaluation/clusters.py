"""Cluster images by their features: a seeded k-means, and a rule for the number of clusters."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.evaluation.arrays import Array, as_features
from dualtemp.losses.similarity import unit

ROWS = 1 << 16  # rows whose distances to all centers are computed at once
RESTARTS = 4
KS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 25, 30, 35, 40, 50)  # candidates for the number of clusters
ASKED = 5_000  # most images used to choose the number
LEAST = 5  # fewest images per cluster, on average, for a number to be tried


class KMeans(NamedTuple):
    """centers (k, F); labels int64 (N,); inertia: sum of squared distances of the rows to their centers."""

    centers: Tensor
    labels: Tensor
    inertia: float


class Clusters(NamedTuple):
    """Clusters, the largest first.

    labels: int64 (N,), the cluster of each image; sizes: int64 (k,); distance: (N,), 1 - cosine of an image with the
    center of its cluster, small for typical images; silhouettes: the mean silhouette for each number of clusters tried;
    empty if the number was given.
    """

    labels: Tensor
    sizes: Tensor
    distance: Tensor
    silhouettes: dict[int, float]

    def examples(self, cluster: int, count: int) -> Tensor:
        """Return the images of a cluster nearest to its center, the nearest first: int64, at most `count`."""
        members = (self.labels == cluster).nonzero()[:, 0]
        return members[self.distance[members].argsort(stable=True)[:count]]


@torch.no_grad()
def find_clusters(features: Array, k: int | None = None, *, seed: int = 0) -> Clusters:
    """Group images by the direction of their features (N, F): k-means on unit vectors.

    Without k, the number of KS with the largest mean silhouette is taken (`choose_k`).
    """
    (z,) = unit(as_features(features))
    silhouettes: dict[int, float] = {}
    if k is None:
        k, silhouettes = choose_k(z, seed=seed)
    found = k_means(z, k, seed=seed)
    sizes = found.labels.bincount(minlength=k)
    order = sizes.argsort(descending=True, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(k)
    (centers,) = unit(found.centers)
    distance = (1 - (z * centers[found.labels]).sum(1)).clamp_min(0)
    held = sizes[order]  # with fewer distinct rows than clusters, some clusters are empty
    return Clusters(place[found.labels], held[held > 0], distance, silhouettes)


@torch.no_grad()
def choose_k(features: Array, ks: Sequence[int] = KS, *, seed: int = 0) -> tuple[int, dict[int, float]]:
    """Choose the number of clusters with the largest mean silhouette; returns it, and the silhouette of each.

    The silhouette of a row is (b - a) / max(a, b), with a its distance to the center of its own cluster, and b that to
    the nearest other center. Of equal mean silhouettes the smaller number wins. At most 5,000 rows, evenly spaced, are
    used, and only numbers with at least five rows per cluster are tried.
    """
    z = as_features(features)
    if len(z) > ASKED:
        z = z[torch.linspace(0, len(z) - 1, ASKED, dtype=torch.float64).long()]
    found: dict[int, float] = {}
    for k in [k for k in ks if k == min(ks) or k * LEAST <= len(z)]:
        if k > len(z):
            return max(1, len(z)), {}
        near = torch.cdist(z, k_means(z, k, seed=seed, restarts=2).centers).sort(dim=1).values
        a, b = near[:, 0], near[:, 1]
        found[k] = float(((b - a) / b.clamp_min(torch.finfo(b.dtype).tiny)).mean())
    return max(found, key=lambda k: (found[k], -k)), found


@torch.no_grad()
def k_means(features: Array, k: int, *, seed: int = 0, restarts: int = RESTARTS, iterations: int = 100) -> KMeans:
    """Lloyd's algorithm from k-means++ starts (Arthur & Vassilvitskii 2007), the best of several by inertia.

    Starts depend on the seed alone: the same rows give the same clusters. A cluster that loses all its rows gets the
    row farthest from its own center. Memory grows with N and with k, not with their product.

    Args:
        features: (N, F), float32 or float64.
        k: number of clusters, from 1 to N.
        seed: of the starts.
        restarts: number of starts.
        iterations: of each, at most.
    """
    x = as_features(features)
    if not 1 <= k <= len(x):
        raise ValueError(f"k_means: k must be from 1 to {len(x)}, the number of rows, got {k}")
    generator, norms = torch.Generator().manual_seed(seed), x.square().sum(1)
    found = [_lloyd(x, norms, _plus_plus(x, norms, k, generator), iterations) for _ in range(restarts)]
    return min(found, key=lambda each: each.inertia)


def _lloyd(x: Tensor, norms: Tensor, centers: Tensor, iterations: int) -> KMeans:
    labels, distance = _assign(x, norms, centers)
    for _ in range(iterations):
        sizes = labels.bincount(minlength=len(centers))
        for empty in (sizes == 0).nonzero()[:, 0].tolist():
            far = int(distance.argmax())
            labels[far], distance[far] = empty, 0
            sizes = labels.bincount(minlength=len(centers))
        sums = torch.zeros_like(centers).index_add_(0, labels, x)
        centers = sums / sizes[:, None].clamp_min(1)
        before = labels
        labels, distance = _assign(x, norms, centers)
        if torch.equal(labels, before):
            break
    return KMeans(centers, labels, float(distance.double().sum()))


def _assign(x: Tensor, norms: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest center of each row, int64 (N,), and its squared distance (N,)."""
    labels, nearest = [], []
    for rows, own in zip(x.split(ROWS), norms.split(ROWS), strict=True):
        least = _squared_distances(rows, own, centers).min(1)
        labels.append(least.indices)
        nearest.append(least.values)
    return torch.cat(labels), torch.cat(nearest)


def _plus_plus(x: Tensor, norms: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Draw k rows, each with a probability proportional to its squared distance to the nearest drawn before.

    Each time a few candidates are drawn, and the one that leaves the smallest sum of squared distances is kept.
    """
    drawn = [int(torch.randint(len(x), (1,), generator=generator))]
    distance = _squared_distances(x, norms, x[drawn])[:, 0]
    for _ in range(k - 1):
        total = distance.double().cumsum(0)
        at = torch.rand(2 + int(math.log(k)), generator=generator, dtype=torch.float64) * total[-1]
        tried = torch.searchsorted(total, at, right=True).clamp_max(len(x) - 1)
        left = torch.minimum(distance[:, None], _squared_distances(x, norms, x[tried]))  # (N, tried)
        best = int(left.double().sum(0).argmin())
        drawn.append(int(tried[best]))
        distance = left[:, best]
    return x[drawn]


def _squared_distances(x: Tensor, norms: Tensor, centers: Tensor) -> Tensor:
    """Squared distances (N, k) of rows (N, F), whose squared norms are given, and centers (k, F)."""
    return (norms[:, None] + centers.square().sum(1) - 2 * x @ centers.T).clamp_min_(0)
