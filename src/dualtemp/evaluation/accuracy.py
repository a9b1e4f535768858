"""Top-1 and top-5 accuracy with defined ties, and the predictions behind them."""

from typing import NamedTuple

import torch
from torch import Tensor


class Accuracy(NamedTuple):
    """Shares of correct predictions, from 0 to 1."""

    top1: float
    top5: float  # top-C where there are C < 5 classes


def top_accuracy(scores: Tensor, labels: Tensor) -> Accuracy:
    """Accuracy of scores (N, C) for labels (N,).

    Of equal scores the lower class number ranks first. NaN ranks last, so that it is never correct by accident.
    """
    ranks = label_ranks(scores, labels)
    top5 = min(5, scores.shape[1])
    return Accuracy(_share(ranks < 1), _share(ranks < top5))


def label_ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """The rank (N,) of each label in its row of scores (N, C), from 0 for the highest to C - 1."""
    classes = torch.arange(scores.shape[1], device=scores.device)
    own = scores.gather(1, labels[:, None])
    behind = (scores < own) | ((scores == own) & (classes >= labels[:, None])) | (classes == labels[:, None])
    return scores.shape[1] - behind.sum(1)


def predicted(scores: Tensor) -> Tensor:
    """The predicted class (N,) of scores (N, C), consistent with `top_accuracy`; -1 if a score is NaN."""
    classes = scores.shape[1]
    places = torch.arange(classes, device=scores.device).expand_as(scores)
    first = places.where(scores == scores.amax(1, keepdim=True), classes).amin(1)  # of equal scores the lower number
    return first.where(first < classes, -1)  # amax returns NaN if there is one, and nothing equals it


def _share(right: Tensor) -> float:
    return right.sum().item() / max(len(right), 1)
