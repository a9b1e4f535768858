"""Read the named sets that torchvision downloads and verifies, as arrays."""

import contextlib
import importlib.util
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualtemp.errors import UserError
from dualtemp.torchvision_operators import declare_missing_operators

SECONDS_OF_SILENCE = 30  # after which a download has failed; torchvision would wait forever


@dataclass(frozen=True)
class Reader:
    """Torchvision's names for a set, its parts, and the attribute of its labels."""

    class_name: str
    parts: dict[str, dict[str, Any]]
    labels: str = "targets"
    channels_first: bool = False
    classes: tuple[str, ...] = ()


_TRAIN_TEST = {"train": {"train": True}, "test": {"train": False}}
_SPLIT = {"train": {"split": "train"}, "test": {"split": "test"}}
READERS = {
    "cifar10": Reader("CIFAR10", _TRAIN_TEST),
    "cifar100": Reader("CIFAR100", _TRAIN_TEST),
    "fashion-mnist": Reader("FashionMNIST", _TRAIN_TEST),
    "svhn": Reader("SVHN", _SPLIT, "labels", channels_first=True, classes=tuple("0123456789")),
    "stl10": Reader("STL10", _SPLIT | {"unlabelled": {"split": "unlabeled"}}, "labels", channels_first=True),
}


@dataclass(frozen=True)
class Arrays:
    """One part: images uint8 (N, H, W, C) or (N, H, W), labels int64 (N,) or None, classes."""

    images: np.ndarray
    labels: np.ndarray | None
    classes: tuple[str, ...]


def read_parts(name: str, root: Path, download: bool) -> Iterator[tuple[str, Arrays]]:
    """Yield (part, arrays) of a set, one part at a time, from files below `root`, which are fetched if `download`.

    Raises what torchvision raises: OSError when a host cannot be reached, RuntimeError for missing or damaged files.
    """
    if name == "svhn" and importlib.util.find_spec("scipy") is None:
        raise UserError("svhn comes in Matlab files: install scipy to read them (pip install scipy)")
    declare_missing_operators()
    from torchvision import datasets

    reader = READERS[name]
    for part, arguments in reader.parts.items():
        with _patience():
            opened = getattr(datasets, reader.class_name)(root=str(root), download=download, **arguments)
        yield part, _arrays(opened, reader, part)


def _arrays(opened: Any, reader: Reader, part: str) -> Arrays:
    images = np.asarray(opened.data)
    if reader.channels_first:
        images = images.transpose(0, 2, 3, 1)
    if part == "unlabelled":
        return Arrays(images, None, ())
    classes = reader.classes or tuple(opened.classes)
    return Arrays(images, np.asarray(getattr(opened, reader.labels)).astype(np.int64), classes)


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SECONDS_OF_SILENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
