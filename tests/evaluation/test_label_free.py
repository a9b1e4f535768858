"""Measures without labels, compared with plain numpy and with features whose answer is known."""

import numpy as np
import pytest
import torch
from drawn_features import blobs
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from dualtemp.evaluation.label_free import (
    SHRINKAGE,
    cluster_learnability,
    eigenspectrum_decay,
    intrinsic_dimension,
    lidar,
    neighbor_agreement,
    view_retrieval,
)


def test_lidar_is_the_effective_rank_of_the_generalized_eigenproblem() -> None:
    x = np.random.default_rng(0).normal(size=(30, 4, 6)) + 2 * np.random.default_rng(1).normal(size=(30, 1, 6))
    means = x.mean(1)
    within = sum((row - mean).T @ (row - mean) for row, mean in zip(x, means, strict=True)) / (30 * 3)
    within += SHRINKAGE * np.trace(within) / 6 * np.eye(6)
    apart = means - means.mean(0)
    values = np.clip(eigh(apart.T @ apart, within, eigvals_only=True), 0, None)
    p = values / values.sum()
    assert lidar(torch.tensor(x)) == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_the_decay_of_a_power_law_is_its_exponent(alpha: float) -> None:
    g = np.random.default_rng(0)
    q, _ = np.linalg.qr(g.normal(size=(200, 50)))
    q, _ = np.linalg.qr(q - q.mean(0))  # columns without a mean
    x = q * np.arange(1, 51.0) ** (-alpha / 2)
    assert eigenspectrum_decay(x) == pytest.approx(alpha, rel=0.02)


def test_views_find_their_image_and_neighbors_agree_if_the_encoder_ignores_the_augmentation() -> None:
    x, _ = blobs(4, 80, spread=1.0)
    assert view_retrieval(x, x) == 1
    assert neighbor_agreement(x, x) == 1
    noise = np.random.default_rng(0).normal(size=x.shape).astype(np.float32)
    assert view_retrieval(x, noise) < 0.05
    assert neighbor_agreement(x, noise) < 0.2
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    seen = unit + 0.2 * noise
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    own = np.argsort(cdist(unit, unit), 1)[:, :11]
    other = np.argsort(cdist(seen, unit), 1)[:, :11]
    shared = [len((set(a) - {i}) & set(b)) for i, (a, b) in enumerate(zip(own.tolist(), other.tolist(), strict=True))]
    assert neighbor_agreement(x, seen) == pytest.approx(np.mean(shared) / 10, abs=0.01)


def test_clusters_of_blobs_are_learnable_and_noise_has_the_dimension_of_its_space() -> None:
    x, _ = blobs(20, 15, spread=0.2)
    noise = np.random.default_rng(0).normal(size=(800, 6))
    assert cluster_learnability(x) > 0.95 > cluster_learnability(noise[:300])
    assert intrinsic_dimension(noise) == pytest.approx(5, rel=0.15)  # directions in six dimensions
