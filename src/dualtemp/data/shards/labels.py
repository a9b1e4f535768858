"""Labels of shards: numbers with or without names, or words, which are numbered in the order of their names."""

import os
from dataclasses import dataclass

import numpy as np

from dualtemp.data.shards.shard_index import ShardIndex
from dualtemp.errors import UserError

CLASSES_FILE = "classes.txt"  # beside the shards: a name a line, in the order of the numbers


@dataclass(frozen=True)
class Labels:
    """of_rows: int64 (N,), a label for each image of an index, -1 none; classes: their names."""

    of_rows: np.ndarray
    classes: tuple[str, ...]


def read_labels(index: ShardIndex, place: str) -> Labels | None:
    """Read the labels of an index; None if there are none. Raises UserError if names and numbers do not fit."""
    used = np.unique(index.labels[index.labels >= 0])
    if not len(used):
        return None
    told = _told(index, place)
    words = [index.words[i] for i in used]
    if all(word.isdecimal() for word in words):
        classes = told or tuple(str(i) for i in range(max(map(int, words)) + 1))
        number = {word: int(word) for word in words}
        if (highest := max(number.values())) >= len(classes):
            raise UserError(f"{place}: an image has label {highest}, but only {len(classes)} classes are named")
    else:
        classes = told or tuple(sorted(words))
        if unknown := next((word for word in words if word not in classes), None):
            raise UserError(f"{place}: an image has label {unknown!r}, not one of the {len(classes)} names")
        number = {word: classes.index(word) for word in words}
    table = np.full(len(index.words) + 1, -1, np.int64)
    table[used] = [number[word] for word in words]
    return Labels(table[index.labels], classes)


def _told(index: ShardIndex, place: str) -> tuple[str, ...]:
    """The names that shards tell, or the file beside them; empty if nobody does."""
    given = {file.classes for file in index.files if file.classes}
    if len(given) > 1:
        raise UserError(f"{place}: its shards name different classes; expected the same in all")
    return given.pop() if given else _classes_beside(index)


def _classes_beside(index: ShardIndex) -> tuple[str, ...]:
    folders = dict.fromkeys(os.path.dirname(file.place) for file in index.files)
    for folder in (*folders, *dict.fromkeys(map(os.path.dirname, folders))):
        try:
            with open(os.path.join(folder, CLASSES_FILE), encoding="utf-8", errors="surrogateescape") as file:
                return tuple(line.rstrip("\n") for line in file if line.strip())
        except (OSError, ValueError):
            continue
    return ()
