from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from dualtemp.encoder import selection as module
from dualtemp.encoder.clusters import cluster
from dualtemp.encoder.selection import (
    anchor_weights,
    class_probabilities,
    select_diverse,
    select_farthest,
    select_hardest,
    select_random,
    select_typical,
    select_uncertain,
)
from dualtemp.errors import UserError

BY_FEATURES = (select_diverse, select_farthest, select_typical)


def points(seed: int, count: int, width: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def unit64(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def blobs(seed: int, sizes: tuple[int, ...], width: int = 8, noise: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centers = unit64(rng.normal(size=(len(sizes), width)))
    label = np.repeat(np.arange(len(sizes)), sizes)
    return (centers[label] + noise * rng.normal(size=(len(label), width))).astype(np.float32), label


def covered(z: np.ndarray, index: list[int]) -> float:
    """The objective of facility location, in float64."""
    return float((1 + z @ z[index].T).max(1).mean() / 2)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 500), st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_every_step_of_diverse_has_the_largest_gain_there_is(seed: int, count: int, n: int, known: int) -> None:
    known, count = min(known, count - 1), max(count, 2)
    n = min(n, count - known)
    z, chosen = unit64(points(seed, count)), list(range(known))
    index, score = select_diverse(points(seed, count), n, chosen=chosen)
    have = list(chosen)
    for image, gain in zip(index.tolist(), score, strict=True):
        before = covered(z, have) if have else 0.0
        gains = {i: covered(z, [*have, i]) - before for i in range(count) if i not in have}
        assert gains[image] == pytest.approx(max(gains.values()), abs=1e-6)
        assert gain == pytest.approx(gains[image], abs=1e-6)
        have.append(image)


def test_of_many_images_diverse_comes_close_to_the_whole_greedy_algorithm(monkeypatch: Any) -> None:
    x, _ = blobs(0, (300, 200, 100, 50, 20), noise=0.3)
    z = unit64(x)
    exact = covered(z, select_diverse(x, 12).index.tolist())
    monkeypatch.setattr(module, "LANDMARKS", 60)
    found = select_diverse(x, 12)
    assert len(set(found.index.tolist())) == 12
    at_random = [covered(z, select_random(len(z), 12, seed=seed).index.tolist()) for seed in range(20)]
    assert covered(z, found.index.tolist()) > max(at_random)
    assert covered(z, found.index.tolist()) > exact - 0.25 * (exact - float(np.mean(at_random)))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 500), st.integers(2, 9), st.integers(1, 4))
def test_farthest_covers_all_within_twice_the_best_radius(seed: int, count: int, n: int) -> None:
    n = min(n, count)
    z = unit64(points(seed, count))
    far = np.linalg.norm(z[:, None] - z[None], axis=2)
    index, score = select_farthest(points(seed, count), n, seed=seed)
    best = min(far[:, list(some)].min(1).max() for some in combinations(range(count), n))
    assert far[:, index].min(1).max() <= 2 * best + 1e-3
    for place in range(1, n):
        before = far[:, index[:place]].min(1)
        assert before[index[place]] == pytest.approx(before.max(), abs=1e-3)
        assert score[place] == pytest.approx(before.max(), abs=1e-3)


def test_typical_takes_the_middle_of_every_cluster_large_ones_first() -> None:
    x, label = blobs(3, (60, 40, 30), noise=0.1)
    index, score = select_typical(x, 3)
    assert label[index].tolist() == [0, 1, 2]
    z = unit64(x)
    for image, told in zip(index.tolist(), score, strict=True):
        members = np.flatnonzero(label == label[image])
        far = np.sort(np.linalg.norm(z[members][:, None] - z[members][None], axis=2), axis=1)[:, 1:21].mean(1)
        assert image == members[far.argmin()]
        assert told == pytest.approx(1 / far.min(), rel=1e-3)
    # A cluster that has a label already is left until the others have one.
    again, _ = select_typical(x, 2, chosen=np.flatnonzero(label == 0)[:1])
    assert sorted(label[again].tolist()) == [1, 2]


def test_clusters_are_as_tight_as_those_of_scikit_learn() -> None:
    x, label = blobs(5, (80, 60, 40, 20), noise=0.15)
    z = unit64(x)
    found = cluster(torch.from_numpy(x), 4, seed=1)
    ours = (z * found.centers.double().numpy()[found.of_image]).sum()
    theirs = KMeans(4, n_init="auto", random_state=0).fit(z)
    centers = unit64(theirs.cluster_centers_)
    assert ours >= (z * centers[theirs.labels_]).sum() - 1e-3
    assert len({(a, b) for a, b in zip(found.of_image.tolist(), label.tolist(), strict=True)}) == 4


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 100), st.integers(2, 40), st.sampled_from([0.07, 0.1, 1.0]), st.integers(2, 50))
def test_anchor_weights_are_those_of_the_paper(seed: int, count: int, tau: float, batch: int) -> None:
    first, second = points(seed, count), points(seed + 1, count)
    w = anchor_weights(first, second, tau=tau, batch=batch)
    assert w.shape == (count,)
    if batch >= count:  # one batch of all: batches of fewer are drawn
        e = np.exp(unit64(first) @ unit64(second).T / tau)
        own = np.diag(e)
        np.testing.assert_allclose(w, (e.sum(1) - own) / e.sum(1), atol=1e-5)
    assert ((w >= 0) & (w <= 1)).all()


def test_the_hardest_have_the_largest_weights_and_a_file_that_could_not_be_read_comes_last() -> None:
    w = np.array([0.2, 0.9, np.nan, 0.9, 0.5], np.float32)
    assert select_hardest(w, 5).index.tolist() == [1, 3, 4, 0, 2]
    assert select_hardest(w, 2, chosen=[1]).index.tolist() == [3, 4]


def test_uncertain_ranks_as_scikit_learns_regression_does() -> None:
    x, truth = blobs(2, (40, 40, 40), width=6, noise=0.5)
    labels = np.where(np.arange(len(x)) % 4 == 0, truth + 7, -1)  # classes of any numbers
    p = class_probabilities(x, labels).numpy()
    shown = (x - x.mean(0)) / x.std(0)
    some = labels >= 0
    fit = LogisticRegression(C=1 / (some.sum() * 0.002 * 6), max_iter=2000, tol=1e-8).fit(shown[some], labels[some])
    expected = fit.predict_proba(shown)
    np.testing.assert_allclose(p, expected, atol=2e-3)
    two = np.sort(expected, axis=1)[:, -2:]
    doubt = {"margin": 1 - (two[:, 1] - two[:, 0]), "entropy": -(expected * np.log(expected)).sum(1)}
    for by, each in doubt.items():
        index, score = select_uncertain(x, labels, 90, by=by)
        assert (labels[index] < 0).all()
        np.testing.assert_allclose(score, each[index], atol=1e-2)
        assert (np.diff(score) <= 0).all()
        assert set(index[:5].tolist()) <= set(np.flatnonzero(~some)[np.argsort(-each[~some])[:8]].tolist())


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 50), st.integers(1, 30), st.booleans())
def test_whatever_the_images_n_different_ones_are_selected_and_none_that_is_labeled(
    seed: int, count: int, equal: bool
) -> None:
    rng = np.random.default_rng(seed)
    x = np.ones((count, 4), np.float32) if equal else points(seed, count, 4)
    if count > 3:
        x[3] = 0  # an image without any feature
    chosen = rng.permutation(count)[: rng.integers(0, count)]
    n = int(rng.integers(0, count - len(chosen) + 1))
    for way in BY_FEATURES:
        index, score = way(x, n, chosen=chosen, seed=seed)
        assert len(set(index.tolist())) == len(score) == n
        assert not set(index.tolist()) & set(chosen.tolist())
        assert np.isfinite(score).all()
        again = way(torch.from_numpy(x), n, chosen=torch.from_numpy(chosen), seed=seed)
        assert again.index.tolist() == index.tolist()
    assert (
        select_random(count, n, chosen=chosen).index.tolist()
        == select_random(count, count - len(chosen), chosen=chosen).index.tolist()[:n]
    )


def test_a_million_images_would_not_make_a_matrix_of_their_pairs(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "TILE", 1 << 12)
    monkeypatch.setattr(module, "LANDMARKS", 64)
    largest = 0

    def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, len(a) * len(b))
        return a @ b.T

    monkeypatch.setattr(module, "_cosine", cosine)
    x = points(0, 3000, 8)
    for way in BY_FEATURES:
        way(x, 16)
    assert largest <= 1 << 13


def test_what_cannot_be_selected_is_one_line() -> None:
    x = points(0, 5)
    for way in BY_FEATURES:
        with pytest.raises(UserError, match="give a number up to that"):
            way(x, 6)
        with pytest.raises(UserError, match="4 images without a label"):
            way(x, 5, chosen=[2])
        with pytest.raises(ValueError, match="from 0 to 4"):
            way(x, 1, chosen=[5])
        with pytest.raises(ValueError, match="not finite"):
            way(np.full((3, 2), np.nan, np.float32), 1)
        with pytest.raises(ValueError, match="a table"):
            way(np.zeros(5, np.float32), 1)
    with pytest.raises(UserError, match="at least two classes"):
        select_uncertain(x, np.array([0, 0, -1, -1, -1]), 1)
    with pytest.raises(ValueError, match="margin or entropy"):
        select_uncertain(x, np.array([0, 1, -1, -1, -1]), 1, by="hope")
