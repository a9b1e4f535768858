"""Top-1 and top-5 accuracy, with ties defined."""

from typing import NamedTuple

import torch
from torch import Tensor


class Accuracy(NamedTuple):
    """Shares of right answers, from 0 to 1."""

    top1: float
    top5: float  # top-C where there are C < 5 classes


def top_accuracy(scores: Tensor, labels: Tensor) -> Accuracy:
    """Accuracy of scores (N, C) for labels (N,).

    Of equal scores the lower class number ranks first. A score that is not a number ranks last: it is never right
    by accident.
    """
    ranks = label_ranks(scores, labels)
    top5 = min(5, scores.shape[1])
    return Accuracy(_share(ranks < 1), _share(ranks < top5))


def label_ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """Place of each label in its row of scores (N, C), from 0 for the best to C - 1: (N,)."""
    classes = torch.arange(scores.shape[1], device=scores.device)
    own = scores.gather(1, labels[:, None])
    behind = (scores < own) | ((scores == own) & (classes >= labels[:, None])) | (classes == labels[:, None])
    return scores.shape[1] - behind.sum(1)


def _share(right: Tensor) -> float:
    return right.sum().item() / max(len(right), 1)
