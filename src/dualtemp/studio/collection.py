"""The images that a studio shows: their names, labels and parts, and where they are."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dualtemp.file_names import valid_text

if TYPE_CHECKING:
    from PIL import Image

    from dualtemp.encoder.image_list import ImageList

NO_CLASS = -1


@dataclass(frozen=True, eq=False)
class Collection:
    """N images in order; the page refers to image i by the number i.

    title: for display; source: a set's name or an absolute path; names: one per image, valid text; parts: "train",
    "test", ... or None; labels: int32 (N,), indices into `classes`, NO_CLASS for none; images: the images themselves,
    None if their location is unknown; numbers: int64 (N,), positions in `images`, -1 for images not in it.
    """

    title: str
    source: str
    names: list[str]
    parts: list[str | None]
    labels: np.ndarray
    classes: tuple[str, ...]
    images: "ImageList | None"
    numbers: np.ndarray

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.names)

    @cached_property
    def folded_names(self) -> list[str]:
        """The names for a search that ignores case."""
        return [name.casefold() for name in self.names]

    @cached_property
    def given_labels(self) -> list[str | None]:
        """The class of each image according to the source."""
        words = [*self.classes, None]  # NO_CLASS is the last
        return [words[label] for label in self.labels.tolist()]

    def picture(self, i: int, enough: int) -> "Image.Image | None":
        """Image i for display; None if its location is unknown. Raises UnreadableImage."""
        number = int(self.numbers[i])
        if self.images is None or number < 0:
            return None
        return self.images.images.source.picture(number, enough=enough)

    def path(self, i: int) -> Path | None:
        """The file of image i, if it has one of its own."""
        number = int(self.numbers[i])
        return None if self.images is None or number < 0 else self.images.path(number)

    def given_label(self, i: int) -> str | None:
        """The class of image i according to the source."""
        return self.given_labels[i]


def collection_of(images: "ImageList", index: np.ndarray, title: str) -> Collection:
    """The images at `index` of a list."""
    known = images.images.labels
    labels = np.full(len(index), NO_CLASS, np.int32) if known is None else known.cpu().numpy()[index].astype(np.int32)
    numbers = index.tolist()
    return Collection(
        title,
        images.source,
        [valid_text(str(images.names[i])) for i in numbers],
        [images.part(i) for i in numbers],
        labels,
        tuple(valid_text(name) for name in images.images.classes),
        images,
        index.astype(np.int64),
    )


def collection_of_rows(
    names: list[str],
    labels: list[str | None],
    parts: list[str | None],
    images: "ImageList | None",
    source: str,
    title: str,
) -> Collection:
    """The images of a feature file, looked up by name in a list of images if there is one."""
    classes = tuple(sorted({label for label in labels if label is not None}))
    place = {name: number for number, name in enumerate(classes)}
    codes = np.array([NO_CLASS if label is None else place[label] for label in labels], np.int32)
    at = {} if images is None else {valid_text(name): i for i, name in enumerate(images.names)}
    numbers = np.array([at.get(name, -1) for name in names], np.int64)
    return Collection(title, source, names, parts, codes, classes, images, numbers)
