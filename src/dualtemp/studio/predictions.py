"""Fit a linear probe on frozen features to the labels so far, and predict the class of every image."""

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dualtemp.studio.softmax_regression import softmax_regression
from dualtemp.studio.space import BLOCK, Space

MOST_LABELED = 3_000  # most images of a fit, so that it takes well under a second
PENALTY = 0.01


class Predictions(NamedTuple):
    """Predictions of the probe. codes: int32 (N,), indices into `classes`; confidence: float32 (N,), of that class.

    uncertainty: float32 (N,), normalized entropy of the class probabilities, 1 if all classes are equally likely;
    labeled: number of images of the fit; seconds: its duration.
    """

    classes: tuple[str, ...]
    codes: np.ndarray
    confidence: np.ndarray
    uncertainty: np.ndarray
    labeled: int
    seconds: float


def fit_predictions(space: Space, labels: Mapping[int, str], first: Mapping[int, str]) -> Predictions | None:
    """Fit to `labels`, by image number, and predict every image; None with fewer than two classes.

    first: the labels to prefer if there are more than MOST_LABELED.
    """
    classes = tuple(sorted(set(labels.values())))
    if len(classes) < 2:
        return None
    began = time.perf_counter()
    numbers = _chosen(labels, first)
    place = {word: code for code, word in enumerate(classes)}
    y = np.array([place[labels[i]] for i in numbers])
    mean, scale = space.moments
    weight, bias = softmax_regression((space.features[numbers] - mean) / scale, y, len(classes), PENALTY)
    # Standardization is folded into the weights, so that predicting all images is one product with the raw features.
    folded = (weight / scale).T
    shift = bias - mean @ folded
    codes = np.empty(len(space.features), np.int32)
    confidence, uncertainty = np.empty(len(codes), np.float32), np.empty(len(codes), np.float32)
    for start in range(0, len(codes), BLOCK):
        logits = space.features[start : start + BLOCK] @ folded + shift  # (n, C)
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(1)
        here = slice(start, start + len(p))
        codes[here], confidence[here] = logits.argmax(1), p.max(1) / total
        # Entropy: log sum e^l - sum p l, of the logits l; divided by that of equally likely classes.
        entropy = np.log(total) - (p * logits).sum(1) / total
        uncertainty[here] = np.clip(entropy / np.log(len(classes)), 0, 1)
    return Predictions(classes, codes, confidence, uncertainty, len(numbers), time.perf_counter() - began)


def _chosen(labels: Mapping[int, str], first: Mapping[int, str]) -> list[int]:
    """At most MOST_LABELED images: those of `first`, then evenly spaced others; always some of every class."""
    if len(labels) <= MOST_LABELED:
        return sorted(labels)
    kept = set(sorted(first)[-MOST_LABELED:])
    by_class: dict[str, list[int]] = {}
    for number in sorted(labels):
        by_class.setdefault(labels[number], []).append(number)
    share = max(1, (MOST_LABELED - len(kept)) // len(by_class))
    for numbers in by_class.values():
        kept.update(numbers[:: max(1, len(numbers) // share)][:share])
    return sorted(kept)
