"""kNN, linear probe and few labels: measures of features that are computed once."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.errors import UserError
from dualtemp.evaluation.accuracy import Accuracy, predicted, top_accuracy
from dualtemp.evaluation.answers import TRAINED, Answers
from dualtemp.evaluation.evaluation_file import result
from dualtemp.evaluation.few_shot import DRAWS, few_labels, few_shot_result, few_shot_scores
from dualtemp.evaluation.knn import best_k, knn_votes
from dualtemp.evaluation.labeled_data import LabeledData, labels_of
from dualtemp.evaluation.probe import probe_scores
from dualtemp.runs.evaluated_measures import ONE_A_CLASS

SHARES = (0.01, 0.05, 0.1)


class Features(NamedTuple):
    """Features (N, F) and labels (N,) of training images, (M, F) and (M,) of test images; all on one device."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def frozen_measures(
    encoders: Mapping[str, RunEncoder],
    found: LabeledData,
    wanted: set[str],
    seed: int,
    workers: int | None,
    problems: dict[str, str],
    on_features: Callable[[Features], None] = lambda features: None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of kNN, linear probe and few labels for each encoder, the trained one first.

    Images are read once for all encoders with the same views, so that all are tested on the same images. problems
    collects unreadable files; on_features is called with the trained encoder's features.
    """
    train, train_labels = readable_features(encoders, found.train, workers, problems)
    test, test_labels = readable_features(encoders, found.test, workers, problems)
    found.check_readable(train_labels, test_labels)
    answers = Answers(found.train.classes)
    for name, encoder in encoders.items():
        parts = (train.pop(name), train_labels, test.pop(name), test_labels)
        features = Features(*(part.to(encoder.device) for part in parts))
        if name == TRAINED:
            on_features(features)
        for row, predictions in _measured(name, features, found, wanted, seed, encoder.settings.knn):
            yield {**row, **answers.details(row["name"], name, predictions, features.test_labels)}


def _measured(
    name: str, features: Features, found: LabeledData, wanted: set[str], seed: int, k: int | str
) -> Iterator[tuple[dict[str, Any], list[Tensor]]]:
    """Yield rows, each with the predicted classes (M,) of the test images, one tensor per draw."""
    images, labels = len(features.test), len(features.train)
    truth = features.test_labels

    def row(measure: str, accuracy: Accuracy, labels: int, began: float) -> dict[str, Any]:
        top5 = accuracy.top5 if found.classes > 5 else None
        return result(measure, name, found.name, accuracy.top1, top5, images, labels, began)

    if "knn" in wanted:
        began = time.monotonic()
        neighbors = best_k(features.train, features.train_labels) if isinstance(k, str) else k
        votes = knn_votes(*features[:3], found.classes, k=neighbors)
        knn = row("kNN", top_accuracy(votes, truth), labels, began)
        yield {**knn, "k": neighbors}, [predicted(votes)]
    if "probe" in wanted:
        began = time.monotonic()
        scores, _ = probe_scores(*features, seed=seed)
        yield row("linear probe", top_accuracy(scores, truth), labels, began), [predicted(scores)]
    for title, share in few_label_draws(features.train_labels) if "few-shot" in wanted else ():
        began = time.monotonic()
        draws = list(few_shot_scores(*features, share, seed=seed))
        few = few_shot_result([top_accuracy(each, truth) for each in draws], few_labels(features.train_labels, share))
        found_row = row(title, Accuracy(few.top1, few.top5), few.labels, began)
        yield {**found_row, "deviation": 100 * few.deviation, "draws": DRAWS}, [predicted(each) for each in draws]


def few_label_draws(labels: Tensor) -> list[tuple[str, float]]:
    """Name and share of each distinct number of few labels; in a small set, the smallest shares coincide.

    If a share is less than one label per class, one of each class is drawn, and the name says so.
    """
    draws: dict[int, tuple[str, float]] = {}
    for share in SHARES:
        count = few_labels(labels, share)
        title = f"{100 * share:.0f} % of labels" if round(share * len(labels)) == count else ONE_A_CLASS
        draws.setdefault(count, (title, share))
    return list(draws.values())


def readable_features(
    encoders: Mapping[str, RunEncoder], images: ImageSet, workers: int | None, problems: dict[str, str]
) -> tuple[dict[str, Tensor], Tensor]:
    """Features (N, F) of each encoder and labels (N,) of all images that can be read, on the CPU.

    Images are read once for all encoders with the same views; a start may need another size than the run.
    """
    alike: dict[Any, dict[str, RunEncoder]] = {}
    for name, encoder in encoders.items():
        views = encoder.views
        seen = (views.size, views.mean, views.std, views.interpolation, views.crop)
        alike.setdefault(seen, {})[name] = encoder
    found: dict[str, Tensor] = {}
    kept: Tensor | None = None  # which images every pass has read
    for some in alike.values():
        features, index = _read_once(some, images, workers, problems)
        if kept is not None and not torch.equal(index, kept):
            raise UserError(f"{images.name}: files changed while they were read; evaluate again")
        found, kept = found | features, index
    return {name: found[name] for name in encoders}, labels_of(images)[kept]


def _read_once(
    encoders: Mapping[str, RunEncoder], images: ImageSet, workers: int | None, problems: dict[str, str]
) -> tuple[dict[str, Tensor], Tensor]:
    """Features (N, F) of each encoder, and index (N,) of the images that can be read."""
    first = next(iter(encoders.values()))
    index: list[Tensor] = []
    parts: dict[str, list[Tensor]] = {name: [] for name in encoders}
    clean = evaluation_batches(
        first.fitted(images), first.views, device=first.device, workers=workers, problems=problems
    )
    for each in clean:
        index.append(each.index)
        for name, encoder in encoders.items():
            parts[name].append(encoder.of_views(each.pixels))
        if first.progress is not None:
            first.progress(int(each.index[-1]) + 1, len(images))
    if not index:
        raise UserError(f"{images.name}: not one image can be read; check them with `dualtemp data`")
    return {name: torch.cat(found) for name, found in parts.items()}, torch.cat(index)
