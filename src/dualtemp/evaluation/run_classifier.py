"""The classifier of a run: made from its labeled training images, kept in its folder, made anew for other weights."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from dualtemp.encoder.encoder import RunEncoder
from dualtemp.errors import UserError
from dualtemp.evaluation.classifier import UNKNOWN_RATE, Classifier, fit_classifier
from dualtemp.evaluation.classifier_file import CLASSIFIER_FILE, kept_classifier, save_classifier
from dualtemp.evaluation.frozen_measures import readable_features
from dualtemp.evaluation.labeled_data import LabeledData, labeled_data


def keep_classifier(
    folder: Path, encoder: RunEncoder, features: Tensor, labels: Tensor, found: LabeledData
) -> Classifier:
    """Fit the classifier of a run to features (N, F) of its training images, and write it to its folder."""
    names = found.train.classes or tuple(map(str, range(found.classes)))
    made = fit_classifier(features, labels, names)
    made = made.with_facts(backbone=encoder.fingerprint, data=encoder.settings.data)
    save_classifier(folder / CLASSIFIER_FILE, made)
    return made


def run_classifier(
    encoder: RunEncoder, workers: int | None = None, tell: Callable[[str], None] = lambda text: None
) -> Classifier | None:
    """Return the classifier of a run; None if it was trained without labels, or is a start.

    One that is missing, damaged or of other weights is made from the run's labeled training images, and kept.
    """
    if encoder.is_start:
        return None
    try:
        kept = kept_classifier(encoder.path, encoder.fingerprint)
    except UserError as error:
        tell(str(error))
        kept = None
    if kept is not None:
        return kept
    if not encoder.settings.labels or not encoder.classes:
        return None
    found = labeled_data(encoder.path, encoder.settings, None)
    tell(f"making the classifier of {encoder.path} from {len(found.train):,} training images")
    features, labels = readable_features({"trained": encoder}, found.train, workers, dict(found.unreadable))
    try:
        return keep_classifier(encoder.path, encoder, features["trained"], labels, found)
    except UserError as error:  # a run that may be read, but not written to
        tell(f"the classifier is not kept: {error}")
        made = fit_classifier(features["trained"], labels, found.train.classes, unknown_rate=UNKNOWN_RATE)
        return made.with_facts(backbone=encoder.fingerprint, data=encoder.settings.data)
