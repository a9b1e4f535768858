"""The classifier on features: compared with scikit-learn, image by image, and with what it has not learned from."""

import numpy as np
import pytest
import torch
from drawn_features import blobs
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from dualtemp.evaluation.classifier import (
    NONE_OF_THESE,
    cross_fitted_logits,
    fit_classifier,
    neighbor_distance,
)
from dualtemp.evaluation.probe import probe_scores


def test_the_linear_part_is_the_probe_of_evaluate() -> None:
    x, y = blobs(4, 30, spread=1.5)
    asked, _ = blobs(4, 5, spread=1.5, seed=1)
    made = fit_classifier(x, y, list("abcd"))
    scores, penalty = probe_scores(*(torch.tensor(part) for part in (x, y, asked, np.zeros(len(asked), int))))
    assert made.facts["penalty"] == penalty
    assert made.classes == ("a", "b", "c", "d")
    torch.testing.assert_close(made.logits(asked), scores, rtol=1e-4, atol=1e-4)


def test_probabilities_are_those_of_scikit_learn_at_the_same_penalty() -> None:
    x, y = blobs(3, 40, spread=2.0)
    made = fit_classifier(x, y)
    z = (x - x.mean(0)) / x.std(0)
    theirs = LogisticRegression(C=1 / (len(x) * made.facts["penalty"]), tol=1e-8, max_iter=2000).fit(z, y)
    np.testing.assert_allclose(made.logits(x).softmax(1), theirs.predict_proba(z), atol=2e-3)


def test_cross_fitted_logits_never_saw_the_label_of_their_image() -> None:
    g = np.random.default_rng(0)
    x, y = g.normal(size=(60, 200)).astype(np.float32), np.arange(60) % 2  # noise that a classifier can learn by heart
    seen = fit_classifier(x, y).logits(x).argmax(1).numpy()
    apart = cross_fitted_logits(x, y, 2, 1e-3).argmax(1).numpy()
    assert (seen == y).mean() > 0.95
    assert (apart == y).mean() < 0.75


def test_the_distance_is_that_of_scikit_learns_neighbors() -> None:
    x, _ = blobs(3, 20)
    asked, _ = blobs(3, 4, seed=2)
    near = NearestNeighbors(n_neighbors=5, metric="cosine").fit(x)
    np.testing.assert_allclose(neighbor_distance(asked, x), near.kneighbors(asked)[0].mean(1), atol=1e-5)
    np.testing.assert_allclose(
        neighbor_distance(x, x, itself=torch.arange(len(x))), near.kneighbors()[0].mean(1), atol=1e-5
    )


def test_a_class_that_it_does_not_know_is_none_of_these_and_known_ones_are_at_the_stated_rate() -> None:
    x, y = blobs(5, 60, spread=0.5)
    asked, truth = blobs(5, 200, spread=0.5, seed=0)
    made = fit_classifier(x[y < 4], y[y < 4], unknown_rate=0.05)
    found = made.predict(asked[truth < 4] + 1e-6)
    assert (found.label == NONE_OF_THESE).double().mean() < 0.12
    strangers = made.predict(asked[truth == 4])
    assert (strangers.label == NONE_OF_THESE).all()
    assert (strangers.best >= 0).all()
    never = fit_classifier(x[y < 4], y[y < 4], unknown_rate=0)
    assert (never.predict(asked[truth == 4]).label >= 0).all()


def test_confidences_on_other_images_can_be_believed() -> None:
    x, y = blobs(4, 150, spread=3.0)
    asked = blobs(4, 500, spread=3.0, seed=0)
    # The same directions, other images: blobs draws the centers first.
    made = fit_classifier(x, y)
    found = made.predict(asked[0][600:])
    right = (found.best.numpy() == asked[1][600:]).mean()
    assert made.facts["ece"] <= made.facts["ece_before"] + 1e-9
    assert float(found.confidence.mean()) == pytest.approx(right, abs=0.08)


def test_with_one_label_a_class_it_is_not_surer_than_its_logits_and_knows_strangers() -> None:
    g = np.random.default_rng(0)
    known = 3.0 + g.normal(size=(8, 32)).astype(np.float32)  # photographs have much in common, whatever their class
    strangers = g.normal(size=(100, 32)).astype(np.float32)
    made = fit_classifier(known, np.arange(8), unknown_rate=0.05)
    assert made.temperature == 1.0
    assert made.spread[1, 0] == np.inf, "the energy of answers that nothing was learned for says nothing"
    found = made.predict(strangers)
    assert found.novelty.isfinite().all()
    assert (found.label == NONE_OF_THESE).double().mean() > 0.9
    others = known + 0.3 * g.normal(size=known.shape).astype(np.float32)
    assert (made.predict(others).label == NONE_OF_THESE).double().mean() < 0.2


def test_all_answers_right_are_no_reason_to_be_surer() -> None:
    made = fit_classifier(*blobs(4, 20, spread=0.1))
    assert made.facts["accuracy"] == 1
    assert made.temperature >= 1


def test_features_of_another_width_and_one_class_are_refused() -> None:
    x, y = blobs(2, 10)
    with pytest.raises(ValueError, match="16 a row"):
        fit_classifier(x, y).predict(x[:, :3])
    with pytest.raises(ValueError, match="two classes"):
        fit_classifier(x, np.zeros(20, int))
