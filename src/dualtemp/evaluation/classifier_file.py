"""classifier.safetensors: a classifier on an encoder's features, in a run's folder or an export. Loading runs no code.

Tensors have the names of `Classifier`'s fields; everything else is one JSON text, `dualtemp`, in the header.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from dualtemp.atomic_write import whole_file
from dualtemp.errors import UserError, writing
from dualtemp.evaluation.classifier import Classifier
from dualtemp.models.weights import ordered_safetensors

CLASSIFIER_FILE = "classifier.safetensors"
TENSORS = ("weight", "bias", "mean", "scale", "bank", "spread")
ABOUT = "dualtemp"


def classifier_bytes(classifier: Classifier) -> bytes:
    """Return the file's content; the same classifier gives the same bytes."""
    about = {
        "classes": list(classifier.classes),
        "temperature": classifier.temperature,
        "threshold": None if classifier.threshold == torch.inf else classifier.threshold,
        "facts": classifier.facts,
    }
    tensors = {name: getattr(classifier, name).float().contiguous() for name in TENSORS}
    return ordered_safetensors(tensors, {ABOUT: json.dumps(about, sort_keys=True)})


def save_classifier(path: Path, classifier: Classifier) -> None:
    """Write a classifier atomically."""
    with writing(path, "make its folder writable"), whole_file(path) as file:
        file.write(classifier_bytes(classifier))


def load_classifier(path: Path) -> Classifier:
    """Read a classifier; raises UserError if the file does not hold one."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[ABOUT])
            tensors = {name: file.get_tensor(name) for name in TENSORS}
        classes = tuple(map(str, about["classes"]))
        C, F = tensors["weight"].shape
        shapes = {"bias": (C,), "mean": (F,), "scale": (F,), "spread": (2, 2), "bank": (len(tensors["bank"]), F)}
        if len(classes) != C or any(tensors[name].shape != shape for name, shape in shapes.items()):
            raise ValueError("its parts do not fit together")
        threshold = torch.inf if about["threshold"] is None else float(about["threshold"])
        given = {**tensors, "temperature": float(about["temperature"]), "facts": dict(about["facts"])}
        return Classifier(classes=classes, threshold=threshold, **given)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(f"{path}: no classifier that can be read ({reason}); remove it, and it is made anew") from None


def kept_classifier(folder: Path, backbone: str) -> Classifier | None:
    """The classifier that a run keeps if it belongs to these weights (`RunEncoder.fingerprint`), else None."""
    path = folder / CLASSIFIER_FILE
    if not path.is_file():
        return None
    found = load_classifier(path)
    return found if found.facts.get("backbone") == backbone else None
