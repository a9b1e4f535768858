"""A tar in WebDataset's layout: members of one key are one sample, KEY.jpg with KEY.cls or KEY.json.

A key is a member's name up to the first dot of its last part. Every member whose ending is an image's is an image; a
sample with two of them is two images with one label.
"""

import json
import posixpath
from typing import Any, BinaryIO

from dualtemp.data.loading.decode import image_extensions
from dualtemp.data.shards.contents import Gatherer, ShardContents
from dualtemp.data.shards.tar_members import Damaged, members

LABEL_WORDS = ("label", "cls", "class", "target", "category")  # of a .json file, the first that is there


def list_tar(file: BinaryIO) -> ShardContents:
    """List the images of a tar; where it is damaged, those before, and what is wrong. Raises OSError."""
    found, endings, trouble = Gatherer(), image_extensions(), ""
    labels: dict[str, str] = {}
    first = 0  # image of the present sample
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
    """Give the images from number `first` on the label of their sample: that of .cls, else of .json."""
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
