"""Image sets (images with labels and other facts), and the splits of a source into such sets."""

import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.image_source import FileImages, ImageSource, TensorImages, as_source
from dualtemp.data.loading.decode import UnreadableImage
from dualtemp.data.loading.stacks import Levels
from dualtemp.data.subset import subset_index
from dualtemp.errors import UserError
from dualtemp.renamed import renamed_arguments

__all__ = ["FileImages", "ImageSet", "ImageSource", "ImagesGone", "Splits", "TensorImages", "UnreadableImage"]


class ImagesGone(UserError):
    """Images that existed when their source was opened are no longer readable, and no others can stand in for them."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images, and what is known about them.

    name: for display, never part of a result's key; pixels: uint8 (N, C, H, W), or a source from which images are read
    one by one; labels: int64 (N,) or None, -1 for an image without one; classes: names by label, empty if there are
    none; channels: C.
    """

    name: str
    pixels: Tensor | ImageSource
    labels: Tensor | None = None
    classes: tuple[str, ...] = ()
    channels: int = 3

    def __post_init__(self) -> None:
        """Check that pixels, labels and channels fit together."""
        tensor = self.source.tensor
        if tensor is not None and (tensor.dtype != torch.uint8 or tensor.ndim != 4):
            raise TypeError(f"pixels: uint8 (N, C, H, W) expected, not {tensor.dtype} {tuple(tensor.shape)}")
        if self.source.channels != self.channels:
            raise ValueError(f"channels is {self.channels}, but the pixels have {self.source.channels}")
        if self.labels is not None and self.labels.shape != (len(self.pixels),):
            raise ValueError(f"labels: ({len(self.pixels)},) expected, not {tuple(self.labels.shape)}")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.pixels)

    @cached_property
    def source(self) -> ImageSource:
        """The images one by one, wherever they are."""
        return as_source(self.pixels)

    @property
    def in_memory(self) -> bool:
        """Whether the images are one tensor."""
        return self.source.tensor is not None

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of a set in memory; None for others, whose images may differ in size."""
        tensor = self.source.tensor
        return None if tensor is None else (tensor.shape[2], tensor.shape[3])

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits of the content: pixels or names and bytes, labels, classes. See fingerprint.py."""
        return self.source.fingerprint(self.labels, self.classes)

    def identity(self) -> dict[str, Any]:
        """What a run records to recognize these images: a fingerprint; of files, only of names and of labels."""
        return self.source.identity(self.labels, self.classes)

    def image_name(self, i: int, prefix: str = "") -> str:
        """The name of image i, or `prefix` and its number if it has none."""
        return self.source.names[i] if self.source.names else f"{prefix}{i}"

    def readable_count(self, problems: Collection[str]) -> int:
        """Number of images whose names are not among `problems`."""
        return len(self) - sum(name in problems for name in self.source.names)

    def take(self, index: Sequence[int] | np.ndarray | Tensor) -> "ImageSet":
        """Return the images at these indices, in that order; give ascending indices if images are sorted by name."""
        where = torch.as_tensor(index, dtype=torch.int64)
        labels = None if self.labels is None else self.labels[where.to(self.labels.device)]
        return self._with(self.source.take(where.tolist()), labels)

    def since(self, start: int) -> "ImageSet":
        """Return the images from number `start` on, without labels; pixels in memory are not copied."""
        return self._with(self.source.take(range(start, len(self))), None)

    def subset(self, amount: int | float, seed: int = 0) -> "ImageSet":
        """Return a subset: an int is a count, a float a fraction in (0, 1].

        It is balanced over the classes if there are labels, and depends on the seed alone, not on the machine. With the
        same seed, a larger subset contains every smaller one. The order of the set is kept.
        """
        return self.take(subset_index(self.labels, len(self), amount, seed))

    def join(self, others: Iterable["ImageSet"]) -> "ImageSet":
        """Return these images followed by those of other parts of the same source; unknown labels are -1."""
        others = list(others)
        labels = None
        if self.labels is not None:
            unknown = self.labels.new_full((1,), -1)
            labels = torch.cat([unknown.expand(len(i)) if i.labels is None else i.labels for i in (self, *others)])
        return self._with(self.source.join([each.source for each in others]), labels)

    def convert(self, channels: int, levels: Levels | None = None) -> "ImageSet":
        """Return the images with `channels` channels (gray from color, color from gray); ValueError if not possible.

        levels: read stacks, or gray images of more than 8 bits, with these (`ImageSource.levels`).
        """
        convert = self.source.convert
        source = convert(channels=channels) if levels is None else convert(channels=channels, levels=levels)
        return replace(self, pixels=_pixels(source), channels=channels)

    def to(self, device: torch.device | str) -> "ImageSet":
        """Return the set with its tensors on a device; images that are read one by one stay where they are."""
        source = self.source
        if isinstance(source, TensorImages):
            source = replace(source, tensor=source.tensor.to(device))
        return replace(self, pixels=_pixels(source), labels=None if self.labels is None else self.labels.to(device))

    def _with(self, source: ImageSource, labels: Tensor | None) -> "ImageSet":
        return replace(self, pixels=_pixels(source), labels=labels)


def _pixels(source: ImageSource) -> Tensor | ImageSource:
    return source if source.tensor is None or source.files is not None else source.tensor


@dataclass(frozen=True, eq=False)
class Splits:
    """The parts of a source.

    train: images to learn from; test: never trained on; unlabeled: more images to learn from (STL-10); unreadable:
    files that were left out, with the reason; split: a description of how train and test were separated.
    """

    train: ImageSet
    test: ImageSet | None = None
    unlabeled: ImageSet | None = None
    unreadable: tuple[UnreadableImage, ...] = field(default=())
    split: str = ""

    def parts(self) -> dict[str, ImageSet]:
        """The existing parts, by the names used in files, folders and environment.json."""
        parts = {"train": self.train, "test": self.test, "unlabelled": self.unlabeled}
        return {name: part for name, part in parts.items() if part is not None}

    @property
    def unlabelled(self) -> ImageSet | None:
        """Former name of `unlabeled`."""
        warnings.warn("Splits.unlabelled is now Splits.unlabeled", DeprecationWarning, stacklevel=2)
        return self.unlabeled

    @cached_property
    def pretraining(self) -> ImageSet:
        """The images for self-supervised training: train, then unlabeled (label -1) if there are any; joined once."""
        return self.train if self.unlabeled is None else self.train.join([replace(self.unlabeled, labels=None)])


Splits.__init__ = renamed_arguments(unlabelled="unlabeled")(Splits.__init__)  # plugins' sources make them
