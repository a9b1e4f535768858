"""Planted errors are found, right labels are left alone."""

import numpy as np
import pytest
from drawn_features import blobs
from sklearn.neighbors import KNeighborsClassifier

from dualtemp.evaluation.wrong_labels import neighbor_votes, suspected_wrong_labels


def planted(share: float, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels with a share of them wrong, and which ones."""
    x, y = blobs(5, 60, spread=spread)
    g = np.random.default_rng(1)
    wrong = g.choice(len(y), round(share * len(y)), replace=False)
    given = y.copy()
    given[wrong] = (y[wrong] + g.integers(1, 5, len(wrong))) % 5
    return x, given, wrong


@pytest.mark.parametrize("share", [0.05, 0.1])
def test_planted_errors_come_first(share: float) -> None:
    x, given, wrong = planted(share)
    found = suspected_wrong_labels(x, given)
    first = found.order[: len(wrong)].tolist()
    assert len(set(first) & set(wrong.tolist())) >= 0.9 * len(wrong)
    truth = np.repeat(np.arange(5), 60)
    hit = [i for i in first if i in set(wrong.tolist())]
    assert (found.suggested.numpy()[hit] == truth[hit]).mean() > 0.9
    assert (found.score[found.order].diff() <= 0).all()
    assert ((found.score >= 0) & (found.score <= 1)).all()


def test_right_labels_are_not_suspected() -> None:
    x, y = blobs(5, 60, spread=0.5)
    assert len(suspected_wrong_labels(x, y).order) == 0


def test_votes_are_scikit_learns_without_the_image_itself() -> None:
    x, y = blobs(3, 15, spread=2.0)
    votes = neighbor_votes(x, y, 3, k=5).numpy()

    def weight(distance: np.ndarray) -> np.ndarray:
        return np.exp((1 - distance) / 0.1)

    for i in range(0, 45, 7):
        others = np.arange(45) != i
        theirs = KNeighborsClassifier(5, metric="cosine", weights=weight).fit(x[others], y[others])  # pyright: ignore
        np.testing.assert_allclose(votes[i], theirs.predict_proba(x[i : i + 1])[0], atol=1e-4)


def test_copies_of_an_image_do_not_hide_it_from_its_neighbors() -> None:
    x = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
    y = np.repeat(np.arange(3), 20)
    y[0] = 2
    assert suspected_wrong_labels(x, y).order.tolist() == [0]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_suggested_for_a_suspect_is_another_class(seed: int) -> None:
    x, y = blobs(10, 30, spread=3.0)
    y = np.random.default_rng(seed).permutation(y)  # labels that mean nothing: neighbors and classifier disagree
    found = suspected_wrong_labels(x, y)
    assert len(found.order) > 100
    assert (found.suggested.numpy() != y)[found.order.numpy()].all()


@pytest.mark.parametrize("each", [8, 1])
def test_the_only_image_of_a_class_is_not_suspected(each: int) -> None:
    x, y = blobs(6, each)
    some = np.flatnonzero((y < 5) | (np.arange(len(y)) == 5 * each))
    found = suspected_wrong_labels(x[some], y[some])
    assert len(found.order) == 0
    assert not found.suspected.any()
    assert found.score[-1] == 0


def test_one_class_has_no_suspects() -> None:
    x, _ = blobs(1, 10)
    assert len(suspected_wrong_labels(x, np.zeros(10, int)).order) == 0
