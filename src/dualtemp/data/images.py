"""The two kinds of image sets (one tensor, or files) and the parts of a source."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.loading.decode import UnreadableImage, read_image
from dualtemp.data.sources.fingerprint import fingerprint_files, fingerprint_pixels
from dualtemp.data.subset import subset_index
from dualtemp.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["FileImages", "ImageSet", "ImagesGone", "Splits", "UnreadableImage"]


class ImagesGone(UserError):
    """Images that were there when their folder was opened cannot be read any more, and nothing can stand for them."""


@dataclass(frozen=True)
class FileImages:
    """Images that stay in files: light enough to be sent to worker processes.

    root: folder that the names are relative to; names: relative posix names, sorted (within each part of
    a joined set); channels: 1 (grey) or 3 (RGB); enough: pixels that the shorter side need have, so that far larger
    images may come reduced (None: as they are).
    """

    root: Path
    names: tuple[str, ...]
    channels: int = 3
    enough: int | None = None

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.names)

    def path(self, i: int) -> Path:
        """Return where image i lies."""
        return self.root / self.names[i]

    def open(self, i: int) -> "Image.Image":
        """Decode image i: upright, first frame, mode "L" or "RGB"; raises UnreadableImage(name, reason)."""
        return read_image(self.path(i), self.names[i], self.channels, self.enough)


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, and what is known about them.

    name: for people, never part of a result's key; pixels: uint8 (N, C, H, W) or files; labels: int64 (N,) or None,
    -1 for an image without one; classes: names by label, empty if there are none; channels: C.
    """

    name: str
    pixels: Tensor | FileImages
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    channels: int = 3

    def __post_init__(self) -> None:
        """Refuse parts that do not fit together."""
        if isinstance(self.pixels, Tensor) and (self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4):
            raise TypeError(f"pixels: uint8 (N, C, H, W) expected, not {self.pixels.dtype} {tuple(self.pixels.shape)}")
        channels = self.pixels.shape[1] if isinstance(self.pixels, Tensor) else self.pixels.channels
        if channels != self.channels:
            raise ValueError(f"channels is {self.channels}, but the pixels have {channels}")
        if self.labels is not None and self.labels.shape != (len(self.pixels),):
            raise ValueError(f"labels: ({len(self.pixels)},) expected, not {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.pixels)

    @property
    def in_memory(self) -> bool:
        """Whether the images are one tensor."""
        return isinstance(self.pixels, Tensor)

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of an in-memory set; None for files, whose sizes may differ."""
        return (self.pixels.shape[2], self.pixels.shape[3]) if isinstance(self.pixels, Tensor) else None

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits of the content: pixels or names and bytes, labels, classes. See fingerprint.py."""
        if isinstance(self.pixels, Tensor):
            return fingerprint_pixels(self.pixels, self.labels, self.classes)
        files = ((name, self.pixels.root / name) for name in self.pixels.names)
        return fingerprint_files(files, self.labels, self.classes)

    def take(self, index: Sequence[int] | np.ndarray | Tensor) -> "ImageSet":
        """Return the images at the given indices, in that order (files: in name order, so give them ascending)."""
        where = torch.as_tensor(index, dtype=torch.int64)
        if isinstance(self.pixels, Tensor):
            pixels = self.pixels[where.to(self.pixels.device)]
        else:
            pixels = replace(self.pixels, names=tuple(self.pixels.names[i] for i in where.tolist()))
        labels = None if self.labels is None else self.labels[where.to(self.labels.device)]
        return replace(self, pixels=pixels, labels=labels)

    def subset(self, amount: int | float, seed: int = 0) -> "ImageSet":
        """Return a subset: an int is a count, a float a fraction in (0, 1].

        Balanced over the classes when there are labels, decided by the seed alone, the same on every machine; with one
        seed a larger subset contains every smaller one. The order of the set is kept.
        """
        return self.take(subset_index(self.labels, len(self), amount, seed))

    def to(self, device: torch.device | str) -> "ImageSet":
        """Return the set with its tensors on a device; files stay files."""
        pixels = self.pixels.to(device) if isinstance(self.pixels, Tensor) else self.pixels
        return replace(self, pixels=pixels, labels=None if self.labels is None else self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Splits:
    """The parts of a source.

    train: to learn from; test: never trained on; unlabelled: more images to learn from (STL-10);
    unreadable: files that were left out, with the reason; split: in words, how train and test were told apart.
    """

    train: ImageSet
    test: ImageSet | None = None
    unlabelled: ImageSet | None = None
    unreadable: tuple[UnreadableImage, ...] = field(default=())
    split: str = ""

    @cached_property
    def pretraining(self) -> ImageSet:
        """What self-supervised training sees: train, followed by unlabelled (label -1) if there is any; joined once."""
        if self.unlabelled is None:
            return self.train
        return _joined(self.train, self.unlabelled)


def _joined(first: ImageSet, second: ImageSet) -> ImageSet:
    if isinstance(first.pixels, Tensor) and isinstance(second.pixels, Tensor):
        pixels = torch.cat([first.pixels, second.pixels])
    elif isinstance(first.pixels, FileImages) and isinstance(second.pixels, FileImages):
        # Both names are relative to the source's folder, so that they cannot meet.
        pixels = replace(first.pixels, names=first.pixels.names + second.pixels.names)
    else:
        raise TypeError("a tensor and files cannot be joined")
    labels = None
    if first.labels is not None:
        labels = torch.cat([first.labels, first.labels.new_full((len(second),), -1)])
    return replace(first, pixels=pixels, labels=labels)
