"""kNN, linear probe and few labels: measures of features that are computed once."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.data.images import ImageSet
from dualtemp.errors import UserError
from dualtemp.evaluation.few_shot import DRAWS, few_shot_accuracy
from dualtemp.evaluation.knn import best_k, knn_accuracy
from dualtemp.evaluation.probe import linear_probe
from dualtemp.inference.encoder import RunEncoder
from dualtemp.inference.evaluation_file import result
from dualtemp.inference.labelled_data import LabelledData, labels_of

SHARES = (0.01, 0.05, 0.1)


class Features(NamedTuple):
    """Features (N, F) and labels (N,) to learn from, (M, F) and (M,) to be asked about; all on one device."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def frozen_measures(
    name: str,
    encoder: RunEncoder,
    found: LabelledData,
    wanted: set[str],
    seed: int,
    workers: int | None,
    problems: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """kNN, linear probe and few labels on features that are computed once; problems collects unreadable files."""
    features = Features(
        *readable_features(encoder, found.train, workers, problems),
        *readable_features(encoder, found.test, workers, problems),
    )
    images, labels = len(features.test), len(features.train)
    if "knn" in wanted:
        began = time.monotonic()
        k = encoder.chosen.knn
        k = best_k(features.train, features.train_labels) if k == "auto" else k
        top1, top5 = knn_accuracy(*features, k=k)
        yield {**result("kNN", name, found.name, top1, top5, images, labels, began), "k": k}
    if "probe" in wanted:
        began = time.monotonic()
        probe = linear_probe(*features, seed=seed)
        yield result("linear probe", name, found.name, probe.top1, probe.top5, images, labels, began)
    for share in SHARES if "few-shot" in wanted else ():
        began = time.monotonic()
        few = few_shot_accuracy(*features, share, seed=seed)
        title = f"{100 * share:.0f} % of labels"
        row = result(title, name, found.name, few.top1, few.top5, images, few.labels, began)
        yield {**row, "deviation": 100 * few.deviation, "draws": DRAWS}


def readable_features(
    encoder: RunEncoder, images: ImageSet, workers: int | None, problems: dict[str, str]
) -> tuple[Tensor, Tensor]:
    """Features (N, F) and labels (N,) of all images that can be read, on the encoder's device."""
    parts = list(encoder.features(images, workers=workers, problems=problems))
    if not parts:
        raise UserError(f"{images.name}: not one image can be read; check them with `dualtemp data`")
    index, features = (torch.cat(part) for part in zip(*parts, strict=True))
    return features.to(encoder.device), labels_of(images)[index].to(encoder.device)
