"""Predict the classes of images, with a run's classifier or one fitted to labeled images on the spot."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.data.sources.copies import are_alike_in_kind, copies, copies_by_pixels
from dualtemp.data.sources.label_file import AUTO
from dualtemp.data.sources.opening import absolute_source
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.encoder.feature_cache import cached_records
from dualtemp.encoder.feature_records import EncodingOptions, Progress, images_of
from dualtemp.encoder.fine_tuned import FineTuned
from dualtemp.encoder.image_list import PARTS, ImageList, listed
from dualtemp.encoder.pictures_by_name import PicturesByName
from dualtemp.errors import UserError
from dualtemp.evaluation.calibration import expected_calibration_error
from dualtemp.evaluation.classifier import UNKNOWN_RATE, Classifier, Predictions, fit_classifier, fit_with_answers
from dualtemp.evaluation.clusters import Clusters, find_clusters
from dualtemp.evaluation.run_classifier import CHOICES, FINE_TUNED, chosen_network, run_classifier
from dualtemp.evaluation.wrong_labels import WrongLabels, suspected_wrong_labels
from dualtemp.quantities import counted
from dualtemp.text import suggest

FEWEST = 4  # images; fewer are not clustered


@dataclass(frozen=True, eq=False)
class Predicted:
    """What `predict` found of N images, in the order of their names.

    names, labels (None where an image has none), parts; features (N, F); classifier, predictions: None if there are no
    labels to learn from; learned: bool (N,), images that the classifier learned from; these are predicted by a
    classifier of other folds, unless only copies of them were learned from; learned_from: a description; measured:
    accuracy, ece and number of the labeled images that it did not learn from; labeled: (L,), places of the labeled
    images in `names`; wrong: suspected wrong labels among these; clusters: None if there are too few images; pictures:
    the images by name; unreadable: files left out, name -> reason.
    """

    names: list[str]
    labels: list[str | None]
    parts: list[str | None]
    features: Tensor
    classifier: Classifier | None
    predictions: Predictions | None
    learned: Tensor
    learned_from: str
    measured: dict[str, float]
    labeled: Tensor
    label_names: tuple[str, ...]
    wrong: WrongLabels | None
    clusters: Clusters | None
    pictures: PicturesByName
    unreadable: dict[str, str] = field(default_factory=dict)


class _Listed(NamedTuple):
    """Readable images of a list: their numbers in it, and their features (N, F)."""

    images: ImageList
    index: np.ndarray
    features: Tensor

    @property
    def labels(self) -> Tensor:
        """Labels, int64 (N,), -1 for none."""
        known = self.images.images.labels
        return torch.full((len(self.index),), -1) if known is None else known.cpu()[torch.from_numpy(self.index)]

    @property
    def to_learn_from(self) -> Tensor:
        """Labeled images that are not in the test part: bool (N,)."""
        parts = torch.tensor([self.images.part(i) != "test" for i in self.index.tolist()])
        return (self.labels >= 0) & parts


class _Source(NamedTuple):
    """A classifier and what it learned from.

    learned_from: a description; answers: predictions of the images that it learned from, by classifiers of other folds;
    seen: bool (N,), copies of images that it learned from, on which it is not measured.
    """

    classifier: Classifier | None
    learned_from: str
    answers: Predictions | None = None
    seen: Tensor | None = None


def predict(
    run: Path | str,
    data: Path | str | None = None,
    *,
    labels: Path | str | None = None,
    learn: Path | str | None = None,
    classifier: str = "auto",
    clusters: int | None = None,
    unknown_rate: float = UNKNOWN_RATE,
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    device: str = "auto",
    cache: bool = True,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Predicted:
    """Predict the classes of images, find labels that are probably wrong, and group them: what `dualtemp predict` does.

    The classifier is the first of these that is possible: one fitted to `learn`; one fitted to the labeled images of
    `data`, if `labels` is given; the run's own; one fitted to the labeled images of `data`. Images that it learned from
    are predicted by a classifier of other folds. A tenth of the labeled images, or the test part, is not learned from.
    If `evaluate` has fine-tuned the run's encoder, the run's own classifier may be that network (see `classifier`);
    then its features are used for clusters and suspected labels too.

    Args:
        run: the run's folder; or a pretrained start: "imagenet", "timm:NAME", a folder of timm.
        data: images: a folder, a set or an .npz file; default: the run's own.
        labels: a CSV file with the labels of some of them: file, label.
        learn: labeled images to learn from, if they are not among `data`.
        classifier: which one of the run: "probe", "fine-tuned", or "auto", the one more often right on the run's
            validation images.
        clusters: number of groups; default: chosen by the silhouette.
        unknown_rate: share of images of known classes that may be called "none of these"; 0 never says so.
        batch: images at once, default 256.
        workers: processes that read image files, default one for each core but one.
        device: default "auto", the best one.
        cache: keep computed features for the next time, and reuse kept ones.
        progress: called with the number of images done, and of all.
        note: called with messages for the user.

    Example:
        >>> found = dualtemp.predict("imagenet", "photos", labels="some.csv")  # doctest: +SKIP
        >>> found.predictions.confidence  # doctest: +SKIP
    """
    if not 0 <= unknown_rate < 1:
        raise UserError(f"unknown_rate must be from 0 to below 1, got {unknown_rate}")
    if clusters is not None and clusters < 1:
        raise UserError(f"clusters must be at least 1, got {clusters}")
    if classifier not in CHOICES:
        raise UserError(f"no classifier is called {classifier!r}: {suggest(classifier, CHOICES)}")
    encoder = run_encoder(Path(run), device)
    options = EncodingOptions(batch, workers, cache=cache, progress=progress, note=note)
    own = data is None or _is_same_source(data, encoder.settings.data)
    tuned = None
    if learn is None and labels is None and not own:
        tuned = chosen_network(encoder, classifier, options.tell)
    elif classifier == FINE_TUNED:
        raise UserError(
            "the fine-tuned network knows the labels of its training images: it is for other images, --data FOLDER, "
            "without --labels and --learn"
        )
    encoder = encoder if tuned is None else tuned.encoder
    problems: dict[str, str] = {}
    given = encoder.settings.labels_from if labels is None and own else labels
    asked = _read(encoder, images_of(encoder, data, labels_from=AUTO if given is None else given), options, problems)
    if clusters is not None and clusters > len(asked.index):
        raise UserError(f"{clusters} clusters of {len(asked.index)} images: give --clusters that many or fewer")
    source = _learn(encoder, asked, labels, learn, own, unknown_rate, options, tuned)
    return _predicted(asked, source, clusters, problems)


def _is_same_source(data: Path | str, other: str) -> bool:
    """Whether both name the same images, however they are spelled; False if one of them no longer exists."""
    try:
        return absolute_source(data) == absolute_source(other)
    except UserError:
        return False


def _learn(
    encoder: RunEncoder,
    asked: _Listed,
    labels: Path | str | None,
    learn: Path | str | None,
    own: bool,
    unknown_rate: float,
    options: EncodingOptions,
    tuned: FineTuned | None,
) -> _Source:
    """Fit the classifier, or read that of the run."""
    if learn is not None and not _is_same_source(learn, asked.images.source):
        found = _read(encoder, listed(learn), options, {})
        chosen = _checked(found, str(learn))
        known = found.labels[chosen]
        made = fit_classifier(found.features[chosen], known, found.images.images.classes, unknown_rate=unknown_rate)
        seen = _copied(found.images, found.index[chosen.numpy()], asked, options.tell)
        return _Source(made, f"{int(chosen.sum()):,} images of {learn}", seen=seen)
    if learn is None and labels is None and not own:
        made = run_classifier(encoder, options.workers, options.tell) if tuned is None else tuned.classifier
        if made is not None:
            if unknown_rate != made.facts["unknown_rate"]:
                options.tell(f"unknown_rate of the run's classifier is {made.facts['unknown_rate']:g}; it stays so")
            seen = _copies_of_run(encoder, asked, options.tell)
            return _Source(made, f"{made.facts['images']:,} training images of {encoder.path}", seen=seen)
    if not (asked.labels >= 0).any():
        advice = "name some images in --labels FILE.csv, or give labeled ones, --learn FOLDER"
        options.tell(f"no labels to learn from, so there are no predictions: {asked.images.no_classes or advice}")
        return _Source(None, "")
    chosen = _checked(asked, asked.images.source)
    x, y = asked.features[chosen], asked.labels[chosen]
    made, answers = fit_with_answers(x, y, asked.images.images.classes, unknown_rate=unknown_rate)
    return _Source(made, f"{int(chosen.sum()):,} of these images", answers)


def _copies_of_run(encoder: RunEncoder, asked: _Listed, tell: Callable[[str], None]) -> Tensor | None:
    """Labeled images of `asked` that are copies of the run's training images: bool (N,).

    None if there are no labels to measure with, or if the run's images are not in an existing folder or file: nothing
    is downloaded to compare with.
    """
    if not (asked.labels >= 0).any() or not os.path.exists(encoder.settings.data):
        return None
    try:
        own = images_of(encoder, None)
    except UserError:
        return None
    return _copied(own, np.flatnonzero(own.parts != PARTS.index("test")), asked, tell)


def _copied(learned: ImageList, numbers: np.ndarray, asked: _Listed, tell: Callable[[str], None]) -> Tensor:
    """Labeled images of `asked` that are copies of images `numbers` of `learned`: bool (N,)."""
    seen, sources = asked.labels >= 0, (learned.images.source, asked.images.images.source)
    alike = None
    if seen.any():
        alike = copies(sources) if are_alike_in_kind(sources) else copies_by_pixels(sources)
    if alike is not None:
        seen &= torch.from_numpy(np.isin(alike[len(learned) + asked.index], alike[numbers]))
    else:
        seen = torch.zeros_like(seen)
    if seen.any():
        tell(f"measured without {counted(int(seen.sum()), 'image')} whose copies it learned from, of {learned.source}")
    return seen


def _checked(found: _Listed, source: str) -> Tensor:
    chosen = found.to_learn_from
    known = found.labels[chosen].unique()
    if not len(known) and found.images.no_classes:
        raise UserError(found.images.no_classes)
    if len(known) < 2:
        has = "no labeled image" if not len(known) else f"one class, {found.images.images.classes[int(known[0])]!r}"
        raise UserError(f"{source}: {has} to learn from; give labeled images of two classes or more")
    return chosen


def _predicted(asked: _Listed, source: _Source, clusters: int | None, problems: dict[str, str]) -> Predicted:
    images, numbers, classifier, answers = asked.images, asked.index.tolist(), source.classifier, source.answers
    learned = torch.zeros(len(numbers), dtype=torch.bool) if source.seen is None else source.seen
    if answers is not None:
        learned = asked.to_learn_from
    predictions, measured = None, {}
    if classifier is not None:
        predictions = classifier.predict(asked.features)
        if answers is not None:
            for whole, part in zip(predictions, answers, strict=True):
                whole[learned] = part
        measured = _measured(asked, classifier, predictions, learned)
    labeled = (asked.labels >= 0).nonzero()[:, 0]
    wrong = None
    if len(asked.labels[labeled].unique()) > 1:
        wrong = suspected_wrong_labels(asked.features[labeled], asked.labels[labeled])
    return Predicted(
        [str(images.names[i]) for i in numbers],
        [images.label(i) for i in numbers],
        [images.part(i) for i in numbers],
        asked.features,
        classifier,
        predictions,
        learned,
        source.learned_from,
        measured,
        labeled,
        images.images.classes,
        wrong,
        find_clusters(asked.features, clusters) if clusters or len(numbers) >= FEWEST else None,
        PicturesByName(images),
        images.foreign | problems,
    )


def _measured(asked: _Listed, classifier: Classifier, found: Predictions, learned: Tensor) -> dict[str, float]:
    """Accuracy and calibration error on labeled images of known classes that the classifier did not learn from."""
    number = {name: label for label, name in enumerate(classifier.classes)}
    own = torch.tensor([number.get(name, -1) for name in asked.images.images.classes] or [-1])
    truth = own[asked.labels.clamp_min(0)].where(asked.labels >= 0, -1)
    tested = (truth >= 0) & ~learned
    if not tested.any():
        return {}
    right = (found.best[tested] == truth[tested]).double().mean()
    return {
        "images": int(tested.sum()),
        "accuracy": float(right),
        "ece": expected_calibration_error(found.probabilities[tested], truth[tested]),
        "none_of_these": float((found.label[tested] < 0).double().mean()),
    }


def _read(encoder: RunEncoder, images: ImageList, options: EncodingOptions, problems: dict[str, str]) -> _Listed:
    index, features = [], []
    for record in cached_records(encoder, images, options):
        index.append(record.index)
        features.append(torch.from_numpy(np.array(record.features)))
        problems.update(record.problems)
    if not any(map(len, index)):
        name, reason = next(iter(problems.items()))
        raise UserError(f"none of {len(images)} images of {images.source} can be read, the first {name}: {reason}")
    return _Listed(images, np.concatenate(index), torch.cat(features))
