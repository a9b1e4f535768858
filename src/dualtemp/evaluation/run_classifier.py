"""The classifiers of a run: the probe, fitted to its training images if missing, and that of the fine-tuned network."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from dualtemp.encoder.encoder import RunEncoder
from dualtemp.encoder.fine_tuned import FineTuned, fine_tuned, save_fine_tuned
from dualtemp.errors import UserError
from dualtemp.evaluation.answers import TRAINED
from dualtemp.evaluation.classifier import BANK_IMAGES, Classifier, balanced_sample, fit_classifier
from dualtemp.evaluation.classifier_file import CLASSIFIER_FILE, kept_classifier, save_classifier
from dualtemp.evaluation.evaluation_file import VALIDATION, read_evaluation
from dualtemp.evaluation.frozen_measures import readable_features
from dualtemp.evaluation.labeled_data import LabeledData, labeled_data, labels_of
from dualtemp.evaluation.tuned_classifier import tuned_classifier
from dualtemp.evaluation.tuned_measures import Tuned

AUTO, PROBE, FINE_TUNED = CHOICES = ("auto", "probe", "fine-tuned")


def keep_classifier(
    folder: Path, encoder: RunEncoder, features: Tensor, labels: Tensor, found: LabeledData
) -> Classifier:
    """Fit the classifier of a run to features (N, F) of its training images, and write it to its folder."""
    made = _fitted(encoder, features, labels, found)
    save_classifier(folder / CLASSIFIER_FILE, made)
    return made


def _fitted(encoder: RunEncoder, features: Tensor, labels: Tensor, found: LabeledData) -> Classifier:
    made = fit_classifier(features, labels, _class_names(found))
    return made.with_facts(backbone=encoder.fingerprint, data=encoder.settings.data)


def _class_names(found: LabeledData) -> tuple[str, ...]:
    return found.train.classes or tuple(map(str, range(found.classes)))


def run_classifier(
    encoder: RunEncoder, workers: int | None = None, tell: Callable[[str], None] = lambda text: None
) -> Classifier | None:
    """Return the classifier of a run; None if the run had no labels of two classes, or is a start.

    If it is missing, damaged or of other weights, it is fitted to the run's labeled training images, and kept.
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
    if not encoder.settings.labels or len(encoder.classes) < 2:
        return None
    found = labeled_data(encoder.path, encoder.settings, None)
    tell(f"making the classifier of {encoder.path} from {len(found.train):,} training images")
    features, labels = readable_features({"trained": encoder}, found.train, workers, dict(found.unreadable))
    found.check_readable(labels, labels_of(found.test))
    made = _fitted(encoder, features["trained"], labels, found)
    try:
        save_classifier(encoder.path / CLASSIFIER_FILE, made)
    except UserError as error:  # the run's folder is read-only
        tell(f"the classifier is not kept: {error}")
    return made


def keep_fine_tuned(encoder: RunEncoder, tuned: Tuned, found: LabeledData, workers: int | None = None) -> None:
    """Write a fine-tuned network to the run's folder, with its classifier, calibrated on the test images."""
    backbone, head = tuned.model.children()
    assert isinstance(head, nn.Linear)
    there = replace(encoder, backbone=backbone.eval(), progress=None)
    some = balanced_sample(labels_of(tuned.train), BANK_IMAGES, 0)
    bank, _ = readable_features({TRAINED: there}, tuned.train.take(some.tolist()), workers, {})
    made = tuned_classifier(head, bank[TRAINED], tuned.features, tuned.labels, _class_names(found)[: found.classes])
    save_fine_tuned(encoder, backbone, made.with_facts(images=tuned.learned, epochs=tuned.epochs))


def chosen_network(encoder: RunEncoder, choice: str, tell: Callable[[str], None]) -> FineTuned | None:
    """The fine-tuned network to predict with; None for the run's encoder and its probe.

    choice: "probe", "fine-tuned", or "auto": whichever was right more often on the same validation images; fine-tuned
    if the probe was not measured.
    """
    if choice == PROBE:
        return None
    try:
        found = fine_tuned(encoder)
    except UserError as error:
        if choice == FINE_TUNED:
            raise
        tell(str(error))
        return None
    if found is None:
        if choice == FINE_TUNED:
            raise UserError(
                f"{encoder.path} keeps no fine-tuned network of its present weights: "
                f"`dualtemp evaluate {encoder.path} --only fine-tune` makes it"
            )
        return None
    mine, probe = 100 * found.classifier.facts["accuracy"], _validated_probe(encoder.path)
    if choice == AUTO and probe is not None and probe >= mine:
        tell(f"by the probe ({probe:.1f} % of the validation images), not the fine-tuned network ({mine:.1f} %)")
        return None
    than = "" if probe is None else f"; the probe {probe:.1f} %"
    tell(f"by the fine-tuned network ({mine:.1f} % of the validation images{than})")
    return found


def _validated_probe(run: Path) -> float | None:
    """Accuracy of the probe on the run's validation images, in %, if `evaluate` has measured it."""
    wanted = ("linear probe", TRAINED, VALIDATION)
    rows = (row for row in read_evaluation(run)["measured"] if (row["name"], row["encoder"], row["data"]) == wanted)
    return next((row["top1"] for row in rows), None)
