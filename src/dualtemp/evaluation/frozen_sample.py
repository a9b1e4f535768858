"""kNN accuracy of an encoder on a few images of a source, in seconds."""

import torch
from torch import Tensor

from dualtemp.data.images import ImageSet, Splits
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.errors import UserError
from dualtemp.evaluation.accuracy import top_accuracy
from dualtemp.evaluation.knn import best_k, knn_votes

BATCH = 50  # images at once; 256 images of 224 px would take two gigabytes


def sample_knn(encoder: RunEncoder, splits: Splits, images: int, seed: int = 0) -> float:
    """kNN top-1, in %, of `images` test images among as many training images, both drawn by the seed."""
    if splits.test is None or splits.train.labels is None or splits.test.labels is None:
        raise UserError(f"{splits.train.name} has no labels to measure with")
    train, train_labels = _features(encoder, splits.train.subset(min(images, len(splits.train)), seed))
    test, labels = _features(encoder, splits.test.subset(min(images, len(splits.test)), seed))
    classes = 1 + int(max(train_labels.max(), labels.max()))
    votes = knn_votes(train, train_labels, test, classes, k=best_k(train, train_labels))
    return 100 * top_accuracy(votes, labels).top1


def _features(encoder: RunEncoder, images: ImageSet) -> tuple[Tensor, Tensor]:
    assert images.labels is not None
    found = list(encoder.features(images, BATCH))
    return torch.cat([part for _, part in found]), images.labels[torch.cat([index for index, _ in found])]
