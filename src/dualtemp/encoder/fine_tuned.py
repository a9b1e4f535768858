"""The fine-tuned encoder of a run with its classifier, kept in the run's folder. Loading runs no code.

There are two files: the weights under the backbone's own names, and the classifier, which records which weights it
belongs to, and which weights of the run were fine-tuned. A pair that does not match, or is not of the run's present
weights, counts as missing.
"""

from typing import NamedTuple

from torch import nn

from dualtemp.atomic_write import whole_file
from dualtemp.encoder.encoder import RunEncoder, weights_fingerprint, with_weights
from dualtemp.errors import writing
from dualtemp.evaluation.classifier import Classifier
from dualtemp.evaluation.classifier_file import load_classifier, save_classifier
from dualtemp.models.weights import backbone_bytes

WEIGHTS_FILE = "fine_tuned.safetensors"
HEAD_FILE = "fine_tuned_classifier.safetensors"


class FineTuned(NamedTuple):
    """A fine-tuned encoder and the classifier on its features."""

    encoder: RunEncoder
    classifier: Classifier


def save_fine_tuned(encoder: RunEncoder, backbone: nn.Module, classifier: Classifier) -> None:
    """Write a run's fine-tuned encoder and its classifier to the run's folder, each file atomically."""
    content, path = backbone_bytes(backbone), encoder.path / WEIGHTS_FILE
    with writing(path, "make its folder writable"), whole_file(path) as file:
        file.write(content)
    made = classifier.with_facts(
        backbone=weights_fingerprint(content), begun_from=encoder.fingerprint, data=encoder.settings.data
    )
    save_classifier(encoder.path / HEAD_FILE, made)


def kept_fine_tuned_classifier(encoder: RunEncoder) -> Classifier | None:
    """The classifier of the run's fine-tuned network; None if there is none, or the run was trained further since."""
    if encoder.is_start or not (encoder.path / WEIGHTS_FILE).is_file() or not (encoder.path / HEAD_FILE).is_file():
        return None
    found = load_classifier(encoder.path / HEAD_FILE)
    return found if found.facts.get("begun_from") == encoder.fingerprint else None


def fine_tuned(encoder: RunEncoder) -> FineTuned | None:
    """The run's fine-tuned network, on the encoder's device; None if there is none that matches."""
    classifier = kept_fine_tuned_classifier(encoder)
    if classifier is None:
        return None
    tuned = with_weights(encoder, encoder.path / WEIGHTS_FILE)
    return FineTuned(tuned, classifier) if tuned.fingerprint == classifier.facts.get("backbone") else None
