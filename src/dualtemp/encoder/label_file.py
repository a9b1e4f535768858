"""Labels that a person has given to some images: a CSV file with the columns name and label."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dualtemp.errors import UserError

EXPECTED = "expected CSV with a first line `name,label`"


def read_labels(path: Path) -> dict[str, str]:
    """Return the label of each name; a name without a label, or one that occurs twice with two, is one line."""
    labels: dict[str, str] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if not {"name", "label"} <= set(reader.fieldnames or ()):
                raise UserError(f"{path}: no columns `name` and `label`; {EXPECTED}")
            for number, line in enumerate(reader, 2):
                name, label = line["name"], line["label"]
                if name is None or label is None:
                    raise UserError(f"{path}: line {number} is too short; {EXPECTED}")
                if labels.setdefault(name, label) != label:
                    raise UserError(f"{path}: {name} has two labels, {labels[name]} and {label}: keep one of them")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read ({reason}); {EXPECTED}") from None
    return {name: label for name, label in labels.items() if label}


def number_labels(labels: Sequence[str | None]) -> tuple[np.ndarray, list[str]]:
    """Turn labels by name into numbers int64 (N,), -1 for none, and the classes in the order of their names."""
    classes = sorted({label for label in labels if label is not None})
    place = {label: number for number, label in enumerate(classes)}
    return np.array([-1 if label is None else place[label] for label in labels], dtype=np.int64), classes


def labels_by_name(names: Sequence[str], given: dict[str, str], path: Path) -> list[str | None]:
    """Return the labels of images in their order; a name that no image has is one line."""
    there = set(names)
    if (foreign := next((name for name in given if name not in there), None)) is not None:
        raise UserError(f"{path}: no image is called {foreign!r}; give names as `dualtemp embed` writes them")
    return [given.get(name) for name in names]
