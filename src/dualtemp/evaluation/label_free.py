"""Measures of an encoder that need no labels; RankMe, alignment and uniformity are in spread.py.

Each takes features and returns a float. `python -m benchmarks.judge_runs` measures which of them tell good encoders
from bad ones; the judge of `judge.py` uses the best.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from dualtemp.data.images import ImageSet
from dualtemp.evaluation.arrays import Array, as_features
from dualtemp.evaluation.clusters import k_means
from dualtemp.evaluation.knn import nearest
from dualtemp.evaluation.spread import effective_rank
from dualtemp.evaluation.wrong_labels import neighbor_votes
from dualtemp.losses.similarity import unit

SHRINKAGE = 1e-4  # added to the within-image scatter, relative to its mean variance
CLUSTERS = 20


@torch.no_grad()
def eigenspectrum_decay(features: Array) -> float:
    """alpha of alpha-ReQ (Agrawal et al. 2022): the eigenvalues of the covariance fall as i^-alpha.

    Fitted by least squares to log eigenvalues, weighted by 1 / i so that every decade counts equally; eigenvalues below
    a millionth of the largest are left out as rounding. About 1 is said to be best.
    """
    x = as_features(features).double()
    values = torch.linalg.svdvals(x - x.mean(0)).square()
    values = values[values > 1e-6 * values[0].clamp_min(torch.finfo(values.dtype).tiny)]
    if len(values) < 3:
        return math.inf
    i = torch.arange(1, len(values) + 1, dtype=torch.float64)
    weight = 1 / i / (1 / i).sum()
    at, value = i.log(), values.log()
    at, value = at - (weight * at).sum(), value - (weight * value).sum()
    return -float((weight * at * value).sum() / (weight * at * at).sum())


@torch.no_grad()
def lidar(views: Tensor) -> float:
    """LiDAR (Thilak et al. 2024): effective rank of between-image scatter, whitened by the scatter within images.

    views: features (N, Q, F) of Q augmented views of each of N images. From 1 to min(N - 1, F).
    """
    x = views.double()
    means = x.mean(1)  # (N, F)
    within = (x - means[:, None]).flatten(0, 1)
    scatter = within.T @ within / max(len(within) - len(means), 1)
    scatter += SHRINKAGE * scatter.diagonal().mean().clamp_min(1e-12) * torch.eye(len(scatter), dtype=x.dtype)
    factor = torch.linalg.cholesky(scatter)
    between = torch.linalg.solve_triangular(factor, (means - means.mean(0)).T, upper=False)  # (F, N)
    values = torch.linalg.svdvals(between).square()
    p = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny)
    return float(torch.special.entr(p).sum().exp())


@torch.no_grad()
def view_retrieval(one: Array, other: Array) -> float:
    """Share of images whose view `one` is nearest to their own view among `other`, both (N, F)."""
    found = torch.cat([index[:, 0] for _, index in nearest(as_features(one), as_features(other), 1)])
    return float((found == torch.arange(len(found))).double().mean())


@torch.no_grad()
def neighbor_agreement(clean: Array, view: Array, k: int = 10) -> float:
    """Share of the k nearest clean images that an image (N, F) and an augmented view of it (N, F) have in common."""
    x, v = as_features(clean), as_features(view)
    common, done = [], 0
    for (_, a), (_, b) in zip(nearest(x, x, k + 1), nearest(v, x, k + 1), strict=True):
        own = torch.arange(done, done + len(a))[:, None]
        done += len(a)
        shared = (a[:, :, None] == b[:, None, :]) & (a != own)[:, :, None]
        common.append((shared.sum((1, 2)) / k).clamp_max(1))
    return float(torch.cat(common).mean())


@torch.no_grad()
def cluster_learnability(features: Array, clusters: int = CLUSTERS, seed: int = 0) -> float:
    """Share of images whose k-means cluster is predicted by their ten nearest other images (Lu et al. 2023)."""
    (z,) = unit(as_features(features))
    labels = k_means(z, min(clusters, len(z)), seed=seed, restarts=1, iterations=20).labels
    return float((neighbor_votes(z, labels, clusters).argmax(1) == labels).double().mean())


@torch.no_grad()
def intrinsic_dimension(features: Array) -> float:
    """TwoNN (Facco et al. 2017) on unit vectors: N / sum of log of second over first neighbor's distance."""
    (z,) = unit(as_features(features).double())
    near = torch.cat([similarity for similarity, _ in nearest(z, z, 3)])[:, 1:]  # the first is the image itself
    distance = (2 - 2 * near).clamp_min(1e-12).sqrt()
    return float(1 / (distance[:, 1] / distance[:, 0]).log().mean().clamp_min(1e-6))


def judged_measures(features: Array) -> dict[str, float]:
    """The measures that the judge's forecast uses, and the effective rank, of features (N, F)."""
    x = as_features(features)
    return {
        "cluster_learnability": cluster_learnability(x),
        "intrinsic_dimension": intrinsic_dimension(x),
        "effective_rank": float(effective_rank(x)),
    }


def judged_images(test: ImageSet | None, training: ImageSet, count: int) -> ImageSet:
    """`count` images to judge an encoder by, without labels: test images if there are enough, else training images."""
    part = test if test is not None and len(test) >= count else training
    return replace(part, labels=None, classes=()).subset(min(count, len(part)))
