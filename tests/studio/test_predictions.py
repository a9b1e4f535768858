"""The page's probe: the same as torch's and scikit-learn's, fitted without torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from command_processes import PATIENCE
from sklearn.linear_model import LogisticRegression

from dualtemp.evaluation.calibration import uncertainty
from dualtemp.evaluation.probe import logistic_regression
from dualtemp.studio.predictions import PENALTY, fit_predictions
from dualtemp.studio.softmax_regression import softmax_regression
from dualtemp.studio.space import make_space

WITHOUT_TORCH = """
import sys
import numpy as np
from dualtemp.studio.predictions import fit_predictions
from dualtemp.studio.space import make_space
space = make_space("x", None, np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32))
assert fit_predictions(space, {0: "a", 1: "b"}, {}) is not None
assert "torch" not in sys.modules
"""


def features(count: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Correlated features that the classes overlap in, and their classes."""
    draw = np.random.default_rng(count + classes)
    labels = np.arange(count) % classes
    z = draw.normal(size=(classes, width))[labels] + 1.5 * draw.normal(size=(count, width))
    z = z @ draw.normal(size=(width, width)) * np.geomspace(1, 0.1, width)
    return ((z - z.mean(0)) / z.std(0)).astype(np.float32), labels


@pytest.mark.parametrize(
    ("count", "width", "classes"), [(2, 5, 2), (12, 40, 3), (300, 10, 2), (400, 24, 7), (90, 6, 30)]
)
def test_it_is_the_probe_of_torch_and_of_scikit_learn(count: int, width: int, classes: int) -> None:
    x, y = features(count, width, classes)
    weight, bias = softmax_regression(x, y, classes, PENALTY)
    theirs = logistic_regression(torch.from_numpy(x).double(), torch.from_numpy(y), classes, PENALTY)
    # Of two classes scikit-learn fits the difference of the weights, of which ours are the two halves.
    strength = (2 if classes == 2 else 1) / (count * PENALTY)
    peer = LogisticRegression(C=strength, tol=1e-10, max_iter=5000).fit(x.astype(np.float64), y)
    p = torch.from_numpy(x @ weight.T + bias).softmax(1).numpy()
    q = torch.nn.functional.linear(torch.from_numpy(x).double(), *theirs).softmax(1).numpy()
    np.testing.assert_allclose(p, q, atol=2e-3)
    np.testing.assert_allclose(p, peer.predict_proba(x), atol=2e-3)


def test_predictions_are_classes_confidence_and_entropy_of_every_image() -> None:
    x, y = features(600, 12, 4)
    space = make_space("x", None, x)
    labels = {i: f"class {y[i]}" for i in range(0, 600, 5)}
    found = fit_predictions(space, labels, {})
    assert found is not None
    assert found.classes == tuple(f"class {n}" for n in range(4))
    assert found.labeled == len(labels)
    z, at = space.features, np.array(sorted(labels))
    standard = (z - z.mean(0)) / z.std(0)
    peer = LogisticRegression(C=1 / (len(at) * PENALTY), tol=1e-10, max_iter=5000).fit(standard[at], y[at])
    p = peer.predict_proba(standard)
    sure = np.sort(p, 1)[:, -1] - np.sort(p, 1)[:, -2] > 0.01
    assert (found.codes == p.argmax(1))[sure].all()
    np.testing.assert_allclose(found.confidence, p.max(1), atol=3e-3)
    np.testing.assert_allclose(found.uncertainty, uncertainty(torch.from_numpy(p)).numpy(), atol=3e-3)
    assert fit_predictions(space, {0: "alone", 1: "alone"}, {}) is None


def test_a_feature_that_never_changes_and_equal_images_are_no_trouble() -> None:
    z = np.ones((20, 4), np.float32)
    found = fit_predictions(make_space("x", None, z), {0: "a", 1: "b", 2: "b"}, {})
    assert found is not None
    assert set(found.codes) == {1}, "the more frequent class"
    np.testing.assert_allclose(found.confidence, 2 / 3, atol=1e-3)


def test_the_first_refit_loads_no_torch() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True, timeout=PATIENCE)
