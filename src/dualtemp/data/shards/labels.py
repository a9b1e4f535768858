"""Labels of shards: numbers with or without names, or words, which are numbered in alphabetical order."""

import contextlib
import os
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from dualtemp.atomic_write import whole_file
from dualtemp.cache_folder import mark_used, shards_folder
from dualtemp.data.shards.remote import is_remote, read_text
from dualtemp.data.shards.shard_index import ShardIndex
from dualtemp.errors import UserError

MOST_CLASSES = 1 << 20  # larger numbers are not classes, but identify something else
KEPT_BACK = "-1"  # what sets write for a label that is withheld
CLASSES_FILE = "classes.txt"  # beside the shards: one name per line, in the order of the numbers


@dataclass(frozen=True)
class Labels:
    """of_rows: int64 (N,), a label for each image of an index, -1 none; classes: their names."""

    of_rows: np.ndarray
    classes: tuple[str, ...]


def read_labels(index: ShardIndex, place: str) -> Labels | None:
    """Read the labels of an index; None if there are none. Raises UserError if names and numbers do not fit."""
    used = np.unique(index.images.labels[index.images.labels >= 0])
    if all(index.words[i] == KEPT_BACK for i in used):
        return None
    told = _told(index, place)
    used = np.array([i for i in used if index.words[i] != KEPT_BACK or KEPT_BACK in told], np.int64)
    words = [index.words[i] for i in used]
    if all(word.isdecimal() for word in words):
        number = {word: int(word) for word in words}
        if (highest := max(number.values())) >= MOST_CLASSES and not told:
            raise UserError(f"{place}: an image has label {highest}; expected classes numbered from 0, or their names")
        classes = told or tuple(str(i) for i in range(highest + 1))
        if highest >= len(classes):
            raise UserError(f"{place}: an image has label {highest}, but only {len(classes)} classes are named")
    else:
        classes = told or tuple(sorted(words))
        if unknown := next((word for word in words if word not in classes), None):
            raise UserError(f"{place}: an image has label {unknown!r}, not one of the {len(classes)} names")
        number = {word: classes.index(word) for word in words}
    table = np.full(len(index.words) + 1, -1, np.int64)
    table[used] = [number[word] for word in words]
    return Labels(table[index.images.labels], classes)


def _told(index: ShardIndex, place: str) -> tuple[str, ...]:
    """The class names given in the shards, or else in a file beside them; empty if there are none."""
    given = {file.classes for file in index.files if file.classes}
    if len(given) > 1:
        raise UserError(f"{place}: its shards name different classes; expected the same in all")
    return given.pop() if given else _classes_beside(index)


def _classes_beside(index: ShardIndex) -> tuple[str, ...]:
    folders = dict.fromkeys(os.path.dirname(file.place) for file in index.files)
    for folder in (*folders, *dict.fromkeys(map(os.path.dirname, folders))):
        if is_remote(folder):
            if (text := _remote_text(f"{folder}/{CLASSES_FILE}")) is not None:
                return tuple(line for line in text.removeprefix("\ufeff").splitlines() if line.strip())
            continue
        try:
            with open(os.path.join(folder, CLASSES_FILE), encoding="utf-8-sig", errors="surrogateescape") as file:
                return tuple(line.rstrip("\n") for line in file if line.strip())
        except (OSError, ValueError):
            continue
    return ()


def _remote_text(place: str) -> str | None:
    """The text of a small remote file, or if it cannot be read now, as it was when it last could."""
    key = blake2b(place.encode(errors="surrogateescape"), digest_size=16).hexdigest()
    kept = shards_folder() / f"{key}.txt"
    try:
        text = read_text(place)
    except OSError:
        if not kept.is_file():
            return None
        mark_used(kept)
        return kept.read_text(errors="replace")
    if text is not None:
        with contextlib.suppress(OSError), whole_file(kept) as file:
            file.write(text.encode(errors="replace"))
    return text
