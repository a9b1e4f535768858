"""Temperature and calibration error compared with scipy and with a computation by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from dualtemp.evaluation.calibration import expected_calibration_error, fit_temperature, uncertainty


def drawn(sharpness: float, N: int = 400, C: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose true temperature is `sharpness`: labels are drawn from softmax(logits / sharpness)."""
    g = np.random.default_rng(seed)
    z = 2 * g.normal(size=(N, C))
    p = np.exp(log_softmax(z, 1))
    labels = np.array([g.choice(C, p=row) for row in p])
    return z * sharpness, labels


@pytest.mark.parametrize("sharpness", [0.3, 1.0, 4.0])
def test_the_temperature_is_where_scipy_finds_the_least_cross_entropy(sharpness: float) -> None:
    z, labels = drawn(sharpness)

    def loss(log_t: float) -> float:
        return -log_softmax(z / np.exp(log_t), 1)[np.arange(len(z)), labels].mean()

    found: Any = minimize_scalar(loss, bounds=(np.log(0.05), np.log(20)), method="bounded", options={"xatol": 1e-9})
    assert fit_temperature(z, labels) == pytest.approx(np.exp(found.x), rel=1e-4)
    assert fit_temperature(z, labels) == pytest.approx(sharpness, rel=0.25)


def test_where_all_answers_are_right_or_wrong_the_temperature_stays_in_its_bounds() -> None:
    z = np.eye(3)[np.arange(30) % 3] * 5
    assert fit_temperature(z, np.arange(30) % 3) == pytest.approx(0.05, rel=1e-6)
    assert fit_temperature(z, (np.arange(30) + 1) % 3) == pytest.approx(20, rel=1e-6)


def by_hand(p: np.ndarray, labels: np.ndarray, bins: int) -> float:
    """Bin by bin: share of the images, times the gap between accuracy and mean confidence."""
    confidence, right = p.max(1), p.argmax(1) == labels
    error = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), bins=st.sampled_from([1, 5, 15]), C=st.integers(2, 6))
def test_the_calibration_error_is_the_one_by_hand(seed: int, bins: int, C: int) -> None:
    g = np.random.default_rng(seed)
    p = g.dirichlet(np.ones(C) * 0.5, size=50)
    labels = g.integers(0, C, 50)
    assert expected_calibration_error(p, labels, bins) == pytest.approx(by_hand(p, labels, bins), abs=1e-9)


def test_temperature_scaling_lowers_the_error_of_a_classifier_that_is_too_sure() -> None:
    z, labels = drawn(4.0, N=3000)
    T = fit_temperature(z, labels)
    before, after = (expected_calibration_error(torch.tensor(z / t).softmax(1), labels) for t in (1.0, T))
    assert before > 0.1
    assert after < 0.03


def test_uncertainty_is_one_where_all_classes_are_alike_and_zero_where_one_is_sure() -> None:
    p = np.array([[0.25, 0.25, 0.25, 0.25], [1, 0, 0, 0], [0.5, 0.3, 0.2, 0]])
    np.testing.assert_allclose(uncertainty(p)[:2], [1, 0], atol=1e-6)
    np.testing.assert_allclose(uncertainty(p, "margin"), [1, 0, 0.8], atol=1e-6)
    np.testing.assert_allclose(uncertainty(p, "least-confident"), [0.75, 0, 0.5], atol=1e-6)
    with pytest.raises(ValueError, match="entropy"):
        uncertainty(p, "doubt")
