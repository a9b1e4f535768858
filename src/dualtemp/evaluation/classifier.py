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
from dualtemp.evaluation.calibration import cautious_temperature, expected_calibration_error
from dualtemp.evaluation.knn import nearest
from dualtemp.evaluation.probe import fit_probe, logistic_regression, standardization
from dualtemp.losses.similarity import unit

NONE_OF_THESE = -1  # the `label` of an image that is far from all classes
FOLD_COUNT = 5
NEIGHBORS = 5  # the mean distance to this many says how far an image is from all classes
BANK_IMAGES = 2_000  # most training images kept to measure that distance
CROSS_FITTED = 10_000  # most images that calibration uses, unless all are asked for
CONSTANT = 1e-6  # a score with at most this deviation counts as constant
UNKNOWN_RATE = 0.05  # share of images of known classes that may be called "none of these"


class Predictions(NamedTuple):
    """Predictions for N images.

    label: int64 (N,), the class, -1 for none of these; best: int64 (N,), the likeliest class in any case; confidence:
    (N,), its calibrated probability; probabilities: (N, C); novelty: (N,), how far the image is from all classes; above
    the classifier's threshold, the label is none of these.
    """

    label: Tensor
    best: Tensor
    confidence: Tensor
    probabilities: Tensor
    novelty: Tensor


@dataclass(frozen=True, eq=False)
class Classifier:
    """A linear classifier on standardized features, with its calibration and the training images it was made from.

    weight (C, F), bias (C,), mean (F,), scale (F,): logits are (x - mean) / scale * weight + bias; classes: names;
    temperature: logits are divided by it; bank: unit features (M, F) of training images; spread: means and deviations
    (2, 2) of negative energy and of distance among training images, which standardize the two scores of novelty
    (deviation inf: the score does not count); threshold: an image of larger novelty is none of these (inf: never);
    facts: how it was made, for JSON.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor
    classes: tuple[str, ...]
    temperature: float
    bank: Tensor
    spread: Tensor
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
        """Predictions from logits (N, C) and the distances (N,) of `neighbor_distance`.

        Novelty is the sum of two scores in standard deviations of the training images: negative energy, -lse(logits),
        and distance. On photographs of a class left out, the sum did better than either (docs/predict.md).
        """
        p = (logits / self.temperature).softmax(1)
        best = predicted(p)
        both = (torch.stack([-logits.logsumexp(1), distance]) - self.spread[0, :, None]) / self.spread[1, :, None]
        novelty = both.sum(0)
        label = best.where(novelty <= self.threshold, NONE_OF_THESE)
        return Predictions(label, best, p.amax(1), p, novelty)

    def with_facts(self, **facts: Any) -> "Classifier":
        """Return the classifier with more facts about how it was made."""
        return replace(self, facts={**self.facts, **facts})


def fit_classifier(
    features: Array,
    labels: Array,
    classes: Sequence[str] | None = None,
    *,
    unknown_rate: float = UNKNOWN_RATE,
    seed: int = 0,
) -> Classifier:
    """Fit a calibrated classifier to frozen features.

    The linear part is that of `linear_probe`. Temperature and the threshold of "none of these" are set by
    cross-fitting: each of at most 10,000 images is predicted by a classifier fitted to the other folds.

    Args:
        features: (N, F).
        labels: (N,), from 0, of at least two classes.
        classes: names by label; default: their numbers.
        unknown_rate: share of known images that may be called "none of these"; 0 never says so.
        seed: of the folds, and of the held-out part on which the penalty is chosen.
    """
    return fit_with_answers(features, labels, classes, unknown_rate=unknown_rate, seed=seed, most=CROSS_FITTED)[0]


@torch.no_grad()
def fit_with_answers(
    features: Array,
    labels: Array,
    classes: Sequence[str] | None = None,
    *,
    unknown_rate: float = UNKNOWN_RATE,
    seed: int = 0,
    most: int | None = None,
) -> tuple[Classifier, Predictions]:
    """Fit a classifier as `fit_classifier` does; returns it, and predictions for the same images.

    The predictions are honest: each image is predicted by a classifier fitted to the other folds. most: predict only
    this many of the images.
    """
    x = as_features(features).float()
    y = as_labels(labels, len(x))
    if len(y.unique()) < 2:
        raise ValueError("fit_classifier: images of at least two classes are needed")
    names = tuple(map(str, range(int(y.max()) + 1))) if classes is None else tuple(classes)
    mean, scale = standardization(x)
    weight, bias, penalty = fit_probe((x - mean) / scale, y, len(names), seed=seed)
    asked = balanced_sample(y, len(y) if most is None else most, seed)
    apart, truth = cross_fitted_logits(x[asked], y[asked], len(names), penalty, seed=seed), y[asked]
    temperature = cautious_temperature(apart, truth)
    kept = balanced_sample(y, BANK_IMAGES, seed)
    (bank,) = unit(x[kept])
    place = torch.full((len(x),), -1).index_put((kept,), torch.arange(len(kept)))
    distance = neighbor_distance(x[asked], bank, itself=place[asked])
    spread = novelty_spread(torch.stack([-apart.logsumexp(1), distance]))
    facts = {
        "images": len(x),
        "penalty": penalty,
        "unknown_rate": unknown_rate,
        "accuracy": float((predicted(apart) == truth).double().mean()),
        "ece_before": expected_calibration_error(apart.softmax(1), truth),
        "ece": expected_calibration_error((apart / temperature).softmax(1), truth),
    }
    made = Classifier(weight, bias, mean, scale, names, temperature, bank, spread, torch.inf, facts)
    if unknown_rate > 0:
        novelty = made.answers(apart, distance).novelty
        made = replace(made, threshold=float(novelty.double().quantile(1 - unknown_rate)))
    return made, made.answers(apart, distance)


@torch.no_grad()
def cross_fitted_logits(
    features: Array, labels: Array, classes: int, penalty: float, *, folds: int = FOLD_COUNT, seed: int = 0
) -> Tensor:
    """Logits (N, C) of each image by a classifier fitted to the other folds alone.

    Folds are balanced over the classes and drawn by the seed. Arguments as in `logistic_regression`.
    """
    x = as_features(features).float()
    y = as_labels(labels, len(x))
    fold = torch.from_numpy(rank_within(y.numpy(), random_keys(seed, FOLDS, len(y))) % folds)
    logits = x.new_zeros(len(x), classes)
    for each in fold.unique().tolist():
        held = fold == each
        if held.all():
            break  # one image of each class: no other fold to learn from
        mean, scale = standardization(x[~held])
        fit = logistic_regression((x[~held] - mean) / scale, y[~held], classes, penalty)
        logits[held] = F.linear((x[held] - mean) / scale, *fit)
    return logits


def novelty_spread(scores: Tensor) -> Tensor:
    """Means and deviations (2, 2) of both scores (2, N) of novelty; the deviation of a constant score becomes inf."""
    deviation = scores.std(1, correction=0)
    return torch.stack([scores.mean(1), deviation.where(deviation > CONSTANT, torch.inf)])


@torch.no_grad()
def neighbor_distance(features: Array, bank: Array, *, k: int = NEIGHBORS, itself: Tensor | None = None) -> Tensor:
    """1 - mean cosine of features (N, F) with the k nearest rows of a bank (M, F): (N,).

    itself: int64 (N,), the image's own row in the bank, which is not its neighbor; -1 if it is not in the bank.
    """
    x, bank = as_features(features), as_features(bank)
    if itself is None or len(bank) == 1:
        return torch.cat([1 - similarity.mean(1) for similarity, _ in nearest(x, bank, k)])
    found, done = [], 0
    for similarity, index in nearest(x, bank, k + 1):
        others = index != itself[done : done + len(index), None]
        others[others.all(1), -1] = False  # without the image itself among the k + 1 found, drop the farthest
        done += len(index)
        found.append(1 - similarity[others].unflatten(0, (len(index), -1)).mean(1))
    return torch.cat(found)


def balanced_sample(labels: Tensor, most: int, seed: int) -> Tensor:
    """Ascending numbers (int64) of all images, or of `most` of them, balanced over the classes."""
    if len(labels) <= most:
        return torch.arange(len(labels))
    rank = rank_within(labels.numpy(), random_keys(seed, BANK, len(labels)))
    return torch.from_numpy(rank).argsort(stable=True)[:most].sort().values
