"""Few labels: a linear classifier on frozen features, fitted to a labeled share of the training images."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.data.subset import subset_index
from dualtemp.evaluation.accuracy import Accuracy, top_accuracy
from dualtemp.evaluation.probe import logistic_regression, standardize

DRAWS = 5
# The penalty per dimension: standardized features have a squared length of about F. It is fixed because a few images
# leave none to choose it on. On CIFAR-10 with 50 to 500 labels it is the best of a grid, or within a point of the best,
# for features of 128 dimensions and for 3,072 pixels.
PENALTY = 0.002


class FewShot(NamedTuple):
    """Means over the draws, the standard deviation of top-1 over them, and the labels that each draw used."""

    top1: float
    top5: float
    deviation: float
    labels: int


def few_shot_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    share: float,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> FewShot:
    """Accuracy of logistic regressions fitted to a labeled share of the training images.

    Each draw takes other images, balanced over the classes, at least one of each, as `ImageSet.subset` chooses them.
    Features are standardized by all training images, which needs no labels; the penalty is .002 per dimension.

    Args:
        train_features: (N, F).
        train_labels: (N,), from 0.
        test_features: (M, F).
        test_labels: (M,), from 0.
        share: of the labels, in (0, 1].
        draws: default 5.
        seed: of the draws; different seeds draw independently.
    """
    found = [
        top_accuracy(scores, test_labels.to(scores.device))
        for scores in few_shot_scores(
            train_features, train_labels, test_features, test_labels, share, draws=draws, seed=seed
        )
    ]
    return few_shot_result(found, few_labels(train_labels, share))


def few_shot_scores(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    share: float,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Iterator[Tensor]:
    """Logits (M, C) of the test features, one tensor per draw; arguments as in `few_shot_accuracy`."""
    if len(train_features) != len(train_labels) or len(test_features) != len(test_labels) or not len(test_labels):
        raise ValueError("few_shot_accuracy: give one label per feature, and at least one of each part")
    if not 0 < share <= 1 or draws < 1:
        raise ValueError(f"few_shot_accuracy: share lies in (0, 1] and draws is at least 1, got {share} and {draws}")
    train, test = standardize(train_features.float(), test_features.float().to(train_features.device))
    labels = train_labels.to(train.device)
    classes = 1 + max(int(labels.max()), int(test_labels.max()))
    count = few_labels(train_labels, share)
    for draw in range(draws):
        index = torch.from_numpy(subset_index(train_labels, len(train), count, draws * seed + draw)).to(train.device)
        fit = logistic_regression(train[index], labels[index], classes, PENALTY * train.shape[1])
        yield F.linear(test, *fit)


def few_shot_result(found: Sequence[Accuracy], labels: int) -> FewShot:
    """Combine the accuracies of the draws, each from `labels` labels, into one result."""
    top1, top5 = torch.tensor(found, dtype=torch.float64).T
    deviation = float(top1.std()) if len(found) > 1 else 0.0
    return FewShot(float(top1.mean()), float(top5.mean()), deviation, labels)


def few_labels(labels: Tensor, share: float) -> int:
    """The number of labels that a share of labels (N,) means: rounded, at least one per class."""
    return max(len(labels.unique()), round(share * len(labels)))
