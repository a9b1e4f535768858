"""Calibration of confidences: temperature scaling, and the expected calibration error."""

import torch
from torch import Tensor

from dualtemp.evaluation.accuracy import predicted
from dualtemp.evaluation.arrays import Array, as_features, as_labels

LOWEST, HIGHEST = 0.05, 20.0  # temperatures; without bounds there is no best one if all predictions are right, or none
BINS = 15


def fit_temperature(logits: Array, labels: Array) -> float:
    """Return the T that minimizes the mean cross entropy of logits / T (Guo et al. 2017), from .05 to 20.

    The cross entropy is convex in 1 / T, so bisection finds its only minimum. Give logits (N, C) of images that the
    classifier was not fitted to, and their labels (N,).
    """
    z = as_features(logits).double()
    own = z.gather(1, as_labels(labels, len(z))[:, None])[:, 0]

    def slope(inverse: float) -> float:
        """Derivative of the cross entropy by 1 / T."""
        return float(((z * inverse).softmax(1) * z).sum(1).sub(own).mean())

    low, high = 1 / HIGHEST, 1 / LOWEST
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) <= 0 else (low, middle)
    return 1 / (low * high) ** 0.5


def cautious_temperature(logits: Array, labels: Array) -> float:
    """`fit_temperature`, but at least 1 if every prediction is right: then the data set no limit on confidence.

    1 if all logits are 0, as of a classifier that has learned nothing.
    """
    z = as_features(logits)
    if not bool(z.any()):
        return 1.0
    found = fit_temperature(z, labels)
    return max(found, 1.0) if bool((predicted(z) == as_labels(labels, len(z))).all()) else found


def expected_calibration_error(probabilities: Array, labels: Array, bins: int = BINS) -> float:
    """Mean over images of |accuracy - confidence| of their bin, from 0 (well calibrated) to 1.

    The confidence of an image is the largest probability in its row of (N, C). Bins have equal width and include their
    right end (Guo et al. 2017).
    """
    p = as_features(probabilities).double()
    confidence, best = p.max(1)
    right = (best == as_labels(labels, len(p))).double()
    place = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    gap = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, right - confidence)
    return float(gap.abs().sum() / len(p))


def uncertainty(probabilities: Array, how: str = "entropy") -> Tensor:
    """Uncertainty (N,) of predictions (N, C), from 0 (sure) to 1, to decide which images to look at or label first.

    how: "entropy", divided by log C; "margin", 1 - the gap between the two likeliest classes; "least-confident",
    1 - the largest probability.
    """
    p = as_features(probabilities)
    if p.shape[1] < 2:
        return torch.zeros(len(p), dtype=p.dtype)
    if how == "entropy":
        return (torch.special.entr(p).sum(1) / torch.tensor(float(p.shape[1])).log()).clamp(0, 1)
    top = p.topk(2, dim=1).values
    if how == "margin":
        return 1 - (top[:, 0] - top[:, 1])
    if how == "least-confident":
        return 1 - top[:, 0]
    raise ValueError(f"uncertainty: take 'entropy', 'margin' or 'least-confident', not {how!r}")
