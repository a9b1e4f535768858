"""A user's labels for some images, by their names in a feature file, in a CSV file as for a folder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dualtemp.data.sources.label_file import image_name, label_lines
from dualtemp.errors import UserError


def read_labels(path: Path) -> dict[str, str]:
    """Return the label of each labeled name; a name with two different labels is a UserError."""
    labels: dict[str, str] = {}
    for _, name, given in label_lines(path):
        label = given.strip()
        if labels.setdefault(name, label) != label:
            raise UserError(f"{path}: {name} has two labels, {labels[name]} and {label}: keep one of them")
    return {name: label for name, label in labels.items() if label}


def number_labels(labels: Sequence[str | None]) -> tuple[np.ndarray, list[str]]:
    """Turn labels into numbers int64 (N,), -1 for none, and the sorted class names."""
    classes = sorted({label for label in labels if label is not None})
    place = {label: number for number, label in enumerate(classes)}
    return np.array([-1 if label is None else place[label] for label in labels], dtype=np.int64), classes


def labels_by_name(names: Sequence[str], given: dict[str, str], path: Path) -> list[str | None]:
    """Return the labels of images in their order; a name that no image has is a UserError."""
    there = set(names)
    known: dict[str, str] = {}
    for cell, label in given.items():
        name = image_name(cell, there)
        if name not in there:
            raise UserError(f"{path}: no image is called {cell!r}; give names as `dualtemp embed` writes them")
        if known.setdefault(name, label) != label:
            raise UserError(f"{path}: {name} has two labels, {known[name]} and {label}: keep one of them")
    return [known.get(name) for name in names]
