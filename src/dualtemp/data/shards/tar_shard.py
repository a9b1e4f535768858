"""Read a tar in WebDataset's layout: members with the same key form a sample, KEY.jpg with KEY.cls or KEY.json.

A key is a member's path up to the first dot of its file name. Every member with the ending of an image is an image; a
sample with two of them counts as two images with one label.
"""

import json
import posixpath
from typing import Any, BinaryIO

from dualtemp.data.loading.decode import image_extensions
from dualtemp.data.shards.contents import Gatherer, ShardContents
from dualtemp.data.shards.tar_members import Damaged, members

LABEL_WORDS = ("label", "cls", "class", "target", "category")  # in a .json file; the first that is present counts


def list_tar(file: BinaryIO) -> ShardContents:
    """List the images of a tar; if it is damaged, those before the damage, with `trouble` set. Raises OSError."""
    found, endings, trouble = Gatherer(), image_extensions(), ""
    labels: dict[str, str] = {}
    first = 0  # number of the first image of the present sample
    key_before = None
    try:
        for name, start, content in members(file):
            folder, _, last = name.rpartition("/")
            stem, _, fields = last.partition(".")
            if not stem or not fields:  # a hidden file, or one without an ending
                continue
            key = f"{folder}/{stem}"
            if key != key_before:
                _give(found, first, labels)
                key_before, first, labels = key, len(found.names), {}
            if posixpath.splitext(last)[1].lower() in endings:
                found.add(name.removeprefix("./"), content, start)
            elif fields.lower() in ("cls", "json"):
                _note_label(labels, fields.lower(), content)
    except Damaged as error:
        trouble = str(error)
    _give(found, first, labels)
    return found.contents(trouble=trouble)


def _give(found: Gatherer, first: int, labels: dict[str, str]) -> None:
    """Label the images from number `first` on with the label of their sample, from .cls or else .json."""
    label = labels.get("cls", labels.get("json"))
    if label is not None:
        found.labels[first:] = [label] * (len(found.labels) - first)


def _note_label(labels: dict[str, str], field: str, content: bytes) -> None:
    text = content.decode(errors="replace").strip()
    if field == "json":
        try:
            told: Any = json.loads(text)
        except ValueError:
            return
        if not isinstance(told, dict):
            return
        value = next((told[word] for word in LABEL_WORDS if word in told), None)
        if isinstance(value, bool) or not isinstance(value, str | int):
            return
        text = str(value).strip()
    if text:
        labels[field] = text
