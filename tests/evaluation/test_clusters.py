"""k-means compared with scikit-learn's, and the rule for the number of clusters."""

from typing import Any

import numpy as np
import pytest
import torch
from drawn_features import blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from dualtemp.evaluation.clusters import choose_k, find_clusters, k_means


def inertia(x: np.ndarray, labels: np.ndarray) -> float:
    """Sum of squared distances to the mean of one's own cluster, in float64."""
    x = x.astype(np.float64)
    return sum(((x[labels == c] - x[labels == c].mean(0)) ** 2).sum() for c in np.unique(labels))


@pytest.mark.parametrize("k", [1, 3, 7])
def test_inertia_is_no_worse_than_that_of_scikit_learn(k: int) -> None:
    x, _ = blobs(6, 40, spread=0.8)
    ours = k_means(x, k, restarts=8)
    theirs: Any = KMeans(k, n_init=8, random_state=0).fit(x)  # pyright: ignore
    assert ours.inertia == pytest.approx(inertia(x, ours.labels.numpy()), rel=1e-4)
    assert ours.inertia <= theirs.inertia_ * 1.01
    for c in range(k):
        np.testing.assert_allclose(ours.centers[c], x[ours.labels.numpy() == c].mean(0), atol=1e-5)


def test_separate_blobs_are_found_and_their_number_too() -> None:
    x, labels = blobs(7, 30)
    found = find_clusters(x)
    assert len(found.sizes) == 7
    assert adjusted_rand_score(labels, found.labels) == 1
    assert max(found.silhouettes, key=lambda k: found.silhouettes[k]) == 7
    assert choose_k(x / np.linalg.norm(x, axis=1, keepdims=True))[0] == 7


def test_clusters_are_sorted_by_size_and_examples_by_typicality() -> None:
    x = np.concatenate([blobs(1, count, seed=seed)[0] for seed, count in enumerate((12, 50, 25))])
    found = find_clusters(x, 3)
    assert found.sizes.tolist() == [50, 25, 12] == found.labels.bincount().tolist()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    examples = found.examples(0, 5).tolist()
    center = unit[found.labels.numpy() == 0].mean(0)
    near = np.argsort(-unit @ center / np.linalg.norm(center))
    assert examples == [i for i in near.tolist() if found.labels[i] == 0][:5]


def test_the_same_seed_gives_the_same_clusters_from_arrays_and_tensors() -> None:
    x, _ = blobs(5, 20, spread=2.0)
    assert torch.equal(find_clusters(x, 4).labels, find_clusters(torch.tensor(x), 4).labels)


@settings(max_examples=15, deadline=None)
@given(rows=st.integers(1, 12), k=st.integers(1, 12), distinct=st.integers(1, 4), seed=st.integers(0, 5))
def test_every_cluster_has_an_image_where_there_are_enough_different_ones(rows, k, distinct, seed) -> None:
    x = np.random.default_rng(seed).normal(size=(distinct, 3)).astype(np.float32)[np.arange(rows) % distinct]
    if k > rows:
        with pytest.raises(ValueError, match="from 1 to"):
            k_means(x, k)
        return
    found = k_means(x, k, seed=seed)
    assert found.labels.shape == (rows,)
    assert np.isfinite(found.inertia)
    if k <= min(rows, distinct):
        assert len(found.labels.unique()) == k
    sizes = find_clusters(x, k, seed=seed).sizes
    assert (sizes > 0).all(), "where there are not, some have none, and are left out"
    assert int(sizes.sum()) == rows
