"""A classifier on frozen features: calibrated, and able to say that an image is none of its classes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.data.subset import BANK, FOLDS, random_keys, rank_within
from dualtemp.evaluation.accuracy import predicted
from dualtemp.evaluation.arrays import Array, as_features, as_labels
from dualtemp.evaluation.calibration import expected_calibration_error, fit_temperature
from dualtemp.evaluation.knn import nearest
from dualtemp.evaluation.probe import fit_probe, logistic_regression, standardization
from dualtemp.losses.similarity import unit

NONE_OF_THESE = -1  # what `label` is for an image that is far from all classes
FOLD_COUNT = 5
NEIGHBORS = 5  # whose mean distance says how far an image is from all classes
BANK_IMAGES = 5_000  # training images that are kept to measure it, at most
UNKNOWN_RATE = 0.05  # share of images of known classes that may be called "none of these"


class Predictions(NamedTuple):
    """Answers for N images.

    label: int64 (N,), the class, -1 for none of these; best: int64 (N,), the likeliest class in any case; confidence:
    (N,), its calibrated probability; probabilities: (N, C); distance: (N,), 1 - mean cosine with the nearest training
    images, which is compared with the classifier's threshold.
    """

    label: Tensor
    best: Tensor
    confidence: Tensor
    probabilities: Tensor
    distance: Tensor


@dataclass(frozen=True, eq=False)
class Classifier:
    """A linear classifier on standardized features, with its calibration and the training images it was made from.

    weight (C, F), bias (C,), mean (F,), scale (F,): logits are (x - mean) / scale * weight + bias; classes: names;
    temperature: logits are divided by it; bank: unit features (M, F) of training images; threshold: an image whose
    distance from its nearest ones is larger is none of these (inf: never); facts: how it was made, for JSON.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor
    classes: tuple[str, ...]
    temperature: float
    bank: Tensor
    threshold: float
    facts: dict[str, Any]

    @torch.no_grad()
    def logits(self, features: Array) -> Tensor:
        """Logits (N, C) of features (N, F), before calibration."""
        x = as_features(features).float()
        if x.shape[1] != self.weight.shape[1]:
            raise ValueError(f"features: {self.weight.shape[1]} a row expected, not {x.shape[1]}")
        return F.linear((x - self.mean) / self.scale, self.weight, self.bias)

    @torch.no_grad()
    def predict(self, features: Array) -> Predictions:
        """Classify features (N, F)."""
        x = as_features(features).float()
        return self.answers(self.logits(x), neighbor_distance(x, self.bank))

    def answers(self, logits: Tensor, distance: Tensor) -> Predictions:
        """Predictions from logits (N, C) and distances (N,), such as those of `cross_fitted_logits`."""
        p = (logits / self.temperature).softmax(1)
        best = predicted(p)
        label = best.where(distance <= self.threshold, NONE_OF_THESE)
        return Predictions(label, best, p.amax(1), p, distance)

    def with_facts(self, **facts: Any) -> "Classifier":
        """Return the classifier with more facts about how it was made."""
        return replace(self, facts={**self.facts, **facts})


@torch.no_grad()
def fit_classifier(
    features: Array,
    labels: Array,
    classes: Sequence[str] | None = None,
    *,
    unknown_rate: float = UNKNOWN_RATE,
    seed: int = 0,
) -> Classifier:
    """Fit a calibrated classifier to frozen features.

    The linear part is the probe's (`linear_probe`). Its temperature is fitted to the logits of images in folds that
    the classifier of the other folds has not learned from; the threshold of "none of these" is the distance that
    `unknown_rate` of the training images exceed, each measured without itself.

    Args:
        features: (N, F).
        labels: (N,), from 0, of at least two classes.
        classes: names by label; default: their numbers.
        unknown_rate: share of known images that may be called "none of these"; 0 never says so.
        seed: of the folds and of the held-out part that the penalty is chosen on.
    """
    x = as_features(features).float()
    y = as_labels(labels, len(x))
    if len(y.unique()) < 2:
        raise ValueError("fit_classifier: images of at least two classes are needed")
    names = tuple(map(str, range(int(y.max()) + 1))) if classes is None else tuple(classes)
    mean, scale = standardization(x)
    weight, bias, penalty = fit_probe((x - mean) / scale, y, len(names), seed=seed)
    apart = cross_fitted_logits(x, y, len(names), penalty, seed=seed)
    temperature = fit_temperature(apart, y)
    kept = _kept(y, seed)
    (bank,) = unit(x[kept])
    distance = neighbor_distance(x[kept], bank, itself=True)
    threshold = torch.inf if unknown_rate == 0 else float(distance.quantile(1 - unknown_rate))
    facts = {
        "images": len(x),
        "penalty": penalty,
        "unknown_rate": unknown_rate,
        "accuracy": float((predicted(apart) == y).double().mean()),
        "ece_before": expected_calibration_error(apart.softmax(1), y),
        "ece": expected_calibration_error((apart / temperature).softmax(1), y),
    }
    return Classifier(weight, bias, mean, scale, names, temperature, bank, threshold, facts)


@torch.no_grad()
def cross_fitted_logits(
    features: Array, labels: Array, classes: int, penalty: float, *, folds: int = FOLD_COUNT, seed: int = 0
) -> Tensor:
    """Logits (N, C) of each image by a classifier that has learned from the other folds alone.

    Folds are balanced over the classes and drawn by the seed. Arguments as in `logistic_regression`.
    """
    x = as_features(features).float()
    y = as_labels(labels, len(x))
    fold = torch.from_numpy(rank_within(y.numpy(), random_keys(seed, FOLDS, len(y))) % folds)
    logits = x.new_zeros(len(x), classes)
    for each in fold.unique().tolist():
        held = fold == each
        if held.all():
            break  # one image of each class: nothing is left to learn from
        mean, scale = standardization(x[~held])
        fit = logistic_regression((x[~held] - mean) / scale, y[~held], classes, penalty)
        logits[held] = F.linear((x[held] - mean) / scale, *fit)
    return logits


@torch.no_grad()
def neighbor_distance(features: Array, bank: Array, *, k: int = NEIGHBORS, itself: bool = False) -> Tensor:
    """1 - mean cosine of features (N, F) with the k nearest rows of a bank (M, F): (N,).

    itself: the features are the bank's rows, in its order, and none is its own neighbor.
    """
    x, bank = as_features(features), as_features(bank)
    if itself and len(bank) < 2:
        return x.new_zeros(len(x))
    found, done = [], 0
    for similarity, index in nearest(x, bank, min(k + itself, len(bank))):
        if itself:
            others = index != torch.arange(done, done + len(index))[:, None]
            others[others.all(1), -1] = False  # copies may stand before an image, and push it out of the list
            similarity = similarity[others].unflatten(0, (len(index), -1))
            done += len(index)
        found.append(1 - similarity.mean(1))
    return torch.cat(found)


def _kept(labels: Tensor, seed: int) -> Tensor:
    """Images of the bank, int64, rising: all, or so many that every class has the same share."""
    if len(labels) <= BANK_IMAGES:
        return torch.arange(len(labels))
    rank = rank_within(labels.numpy(), random_keys(seed, BANK, len(labels)))
    order = torch.from_numpy(rank).argsort(stable=True)
    return order[:BANK_IMAGES].sort().values
