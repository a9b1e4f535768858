"""The images of a source in order, each with its name, for computing features."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from dualtemp.data.images import FileImages, ImageSet, Splits
from dualtemp.data.loading.stacks import Levels, of_stack
from dualtemp.data.sources.copies import copies
from dualtemp.data.sources.folder import classed_files, find_images, foreign_images, given_labels
from dualtemp.data.sources.label_file import AUTO
from dualtemp.data.sources.npz import held_out_of_one, read_npz
from dualtemp.data.sources.opening import (
    absolute_source,
    image_folder,
    is_named_set,
    open_source,
    refuse_label_file,
)
from dualtemp.errors import UserError

PARTS = ("train", "test", "unlabelled")  # the names in feature files


@dataclass(frozen=True)
class ImageList:
    """Images in order.

    source: a set's name or an absolute path; names: one per image, all different; parts: int64 (N,), indices into
    PARTS, -1 for an image that belongs to none; foreign: files in formats that cannot be read (HEIC, raw), and missing
    or damaged shards, name -> reason; no_classes: why folders do not count as classes, if training would refuse them.
    """

    source: str
    images: ImageSet
    names: Sequence[str]
    parts: np.ndarray
    foreign: dict[str, str] = field(default_factory=dict)
    no_classes: str = ""

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.names)

    def part(self, i: int) -> str | None:
        """The part that image i belongs to."""
        return PARTS[self.parts[i]] if self.parts[i] >= 0 else None

    def label(self, i: int) -> str | None:
        """The class of image i, by name."""
        label = -1 if self.images.labels is None else int(self.images.labels[i])
        return self.images.classes[label] if label >= 0 else None

    def between(self, rows: range) -> "ImageList":
        """Return a range of the images; `foreign` stays with the range that begins at 0."""
        names = self.names[rows.start : rows.stop]
        foreign = self.foreign if rows.start == 0 else {}
        return ImageList(self.source, self.images.take(rows), names, self.parts[rows.start : rows.stop], foreign)

    def by_levels(self, levels: Levels | None) -> "ImageList":
        """Read gray images of more than 8 bits with an encoder's levels, also to show them: people see what it sees."""
        if levels is None or of_stack(levels) or of_stack(self.images.source.levels):
            return self
        return replace(self, images=self.images.convert(self.images.channels, levels))

    def path(self, i: int) -> Path | None:
        """The file of image i; None for images that are not in files of their own."""
        return self.images.source.path(i)


def listed(
    data: str | Path, part: str = "all", *, labels: bool = True, labels_from: Path | str | None = AUTO
) -> ImageList:
    """List all images of a source, or one part of it.

    Files are sorted by name, including those that cannot be read or are not in a class folder; the images of a set or
    of an .npz file keep its order, and are numbered, train first.

    Args:
        data: a set, a folder of images, an .npz file or shards.
        part: "train", "test" or "all".
        labels: include the classes.
        labels_from: a CSV file with the labels of a folder's images; default: labels.csv of a flat folder.
    """
    source, folder = absolute_source(data), image_folder(data)
    if folder is not None:
        found = _of_folder(folder.resolve(), labels, labels_from)
    elif not is_named_set(data) and source.lower().endswith(".npz") and Path(source).is_file():
        refuse_label_file(source, labels_from)
        found = _of_npz(Path(source), labels)
    else:
        found = _of_splits(source, open_source(data, labels=labels, labels_from=labels_from))
    if part == "all":
        return found
    if part not in PARTS:
        raise UserError(f"no part is called {part!r}: take train, test or all")
    where = np.flatnonzero(found.parts == PARTS.index(part))
    if not len(where):
        raise UserError(f"{data} has no {part} part: leave --part out to take all its images")
    images = found.images.take(where)
    names = images.source.names or tuple(found.names[i] for i in where.tolist())
    beside = {_folder(name, 0) for name in names} if found.foreign else set()
    foreign = {name: reason for name, reason in found.foreign.items() if _folder(name, 0) in beside}
    return ImageList(found.source, images, names, found.parts[where], foreign)


def _of_folder(root: Path, labels: bool, labels_from: Path | str | None) -> ImageList:
    names = tuple(find_images(root))
    foreign = {each.name: each.reason for each in foreign_images(root)}
    if not names and foreign:
        first, reason = next(iter(foreign.items()))
        raise UserError(f"{root}: none of {len(foreign)} image files can be read, the first {first}: {reason}")
    if not names:
        raise UserError(f"{root}: no image file in it; give a folder of images")
    if labels:
        given_labels(root, labels_from)  # raises on a mistake in a label file, which `_folder_parts` would swallow
    parts, no_classes = _folder_parts(root, labels, labels_from)
    part_of = {name: PARTS.index(part) for part, (files, _) in parts.items() for name in files.names}
    numbers = np.array([part_of.get(name, -1) for name in names], dtype=np.int64)
    folder_of = {
        name: folder
        for part, (files, folders) in parts.items()
        for name, folder in zip(files.names, folders, strict=True)
        if part != PARTS[2]
    }
    folders = [folder_of.get(name, "") for name in names]
    classes = tuple(sorted({folder for folder in folders if folder}))
    place = {folder: label for label, folder in enumerate(classes)} | {"": -1}
    known = torch.tensor([place[folder] for folder in folders]) if classes else None
    images = ImageSet(root.name, FileImages(root, names), known, classes)
    return ImageList(str(root), images, names, numbers, foreign, no_classes)


def _folder_parts(
    root: Path, labels: bool, labels_from: Path | str | None
) -> tuple[dict[str, tuple[FileImages, list[str]]], str]:
    """The parts of a folder with their classes, and why they have no classes, if training would refuse the folder."""
    why = ""
    for labeled in (True, False) if labels else (False,):
        try:
            return classed_files(root, labeled, labels_from), why
        except UserError as error:
            why = why or str(error)
    return {}, why


def _folder(name: str, depth: int) -> str:
    folders = name.split("/")[:-1]
    return folders[depth] if len(folders) > depth else ""


def _of_npz(path: Path, labels: bool) -> ImageList:
    arrays = read_npz(path)
    pixels = torch.from_numpy(arrays.images).permute(0, 3, 1, 2)
    known = torch.from_numpy(arrays.labels) if labels and arrays.labels is not None else None
    classes: tuple[str, ...] = ()
    if known is not None:
        classes = arrays.classes or tuple(map(str, range(int(known.max()) + 1)))
        if int(known.max()) >= len(classes):
            raise UserError(f"{path}: `labels` has {int(known.max())}, `classes` only {len(classes)} names")
    images = ImageSet(path.stem, pixels, known, classes, channels=pixels.shape[1])
    test = held_out_of_one(images, copies([images.source]))
    return ImageList(str(path), images, _numbered("", len(pixels)), test.astype(np.int64))


def _of_splits(source: str, splits: Splits) -> ImageList:
    sets = splits.parts()
    numbers = np.repeat([PARTS.index(part) for part in sets], [len(images) for images in sets.values()])
    first, *others = sets.values()
    whole = first.join(others)
    numbered = (name for part, images in sets.items() for name in _numbered(f"{part}/", len(images)))
    lost = {each.name: each.reason for each in splits.unreadable}
    return ImageList(source, whole, whole.source.names or tuple(numbered), numbers, lost)


def _numbered(prefix: str, count: int) -> tuple[str, ...]:
    """Names made of numbers with leading zeros, so that they sort in the order of the images."""
    digits = len(str(count - 1))
    return tuple(f"{prefix}{i:0{digits}}" for i in range(count))
