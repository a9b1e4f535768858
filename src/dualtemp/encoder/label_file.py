"""A user's labels for some images, by their names in a feature file, in a CSV file as for a folder."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from dualtemp.data.sources.label_file import image_name, label_lines, require_labels
from dualtemp.errors import UserError


def number_labels(labels: Sequence[str | None]) -> tuple[np.ndarray, list[str]]:
    """Turn labels into numbers int64 (N,), -1 for none, and the sorted class names."""
    classes = sorted({label for label in labels if label is not None})
    place = {label: number for number, label in enumerate(classes)}
    return np.array([-1 if label is None else place[label] for label in labels], dtype=np.int64), classes


def labels_by_name(
    path: Path,
    names: Sequence[str],
    left_out: Collection[str] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> list[str | None]:
    """Return the labels that a file gives to images, in the order of `names`; None for an image without one.

    Raises UserError if the file has no label, two labels for one name, or a label for a name that no image has.
    left_out: names of images without features, such as unreadable ones: their labels are dropped, and `tell` says so.
    """
    own = set(names)
    known = own.union(left_out)
    labels: dict[str, str] = {}
    for _, cell, given in label_lines(path, known):
        name, label = image_name(cell, known), given.strip()
        if labels.setdefault(name, label) != label:
            raise UserError(f"{path}: {name} has two labels, {labels[name]} and {label}: keep one of them")
    labels = {name: label for name, label in labels.items() if label}
    if unknown := [name for name in labels if name not in known]:
        raise UserError(f"{path}: no image is called {unknown[0]!r}; give names as `dualtemp embed` writes them")
    dropped = [name for name in labels if name not in own]
    if dropped and len(dropped) == len(labels):
        raise UserError(f"{path}: only images without features have a label, such as {dropped[0]}")
    require_labels(path, labels, ())
    if dropped:
        more = f" and {len(dropped) - 1:,} more" if len(dropped) > 1 else ""
        tell(f"{path}: labels of images without features are not used: {dropped[0]}{more}")
    return [labels.get(name) for name in names]
