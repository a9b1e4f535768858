"""Sets in .npz files: one file, or a folder with train.npz and test.npz.

    images   uint8 (N, H, W, C), or (N, H, W) for gray
    labels   optional, whole numbers (N,), from 0
    classes  optional, names by label

No file is trusted: nothing in it is unpickled, and sizes are checked before anything is allocated.
"""

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy

from dualtemp.atomic_write import whole_file
from dualtemp.data.images import ImageSet, Splits
from dualtemp.data.sources.copies import copies
from dualtemp.data.sources.held_out import held_out
from dualtemp.data.sources.registry import source
from dualtemp.data.subset import HELD_OUT, random_keys
from dualtemp.errors import UserError

MOST_CLASSES = 1 << 20
WANTED = ("images", "labels", "classes")
EXPECTED = "expected `images` uint8 (N, H, W, C) or (N, H, W), optional `labels` (N,), optional `classes`"


@dataclass(frozen=True)
class NpzArrays:
    """The content of one file: images uint8 (N, H, W, C), labels int64 (N,) or None, classes or None."""

    path: Path
    images: np.ndarray
    labels: np.ndarray | None
    classes: tuple[str, ...] | None


FILES = ("train.npz", "test.npz", "unlabelled.npz")  # that a folder of .npz files may hold
# Names of parts that are valid in a folder of images, but not in a folder of .npz files.
NOT_READ = ("val.npz", "validation.npz", "valid.npz", "unlabeled.npz")


def is_npz_folder(folder: Path) -> bool:
    """Whether a folder holds a set in .npz files."""
    return (folder / "train.npz").is_file()


def open_npz(path: Path, name: str = "", labels: bool = True, together: bool = True) -> Splits:
    """Open an .npz file, or a folder with train.npz and, optionally, test.npz and unlabelled.npz.

    Without a test.npz a tenth is held out, balanced over the classes, by a hash of the position in the file.
    labels=False ignores labels and classes; together=False may separate equal images, as earlier runs did.
    """
    whole = path.is_file()
    name = name or (path.stem if whole else path.name)
    train = read_npz(path if whole else path / "train.npz")
    test = None if whole or not (path / "test.npz").is_file() else read_npz(path / "test.npz")
    more = None if whole or not (path / "unlabelled.npz").is_file() else read_npz(path / "unlabelled.npz")
    for other in (test, more):
        if other and other.images.shape[1:] != train.images.shape[1:]:
            raise UserError(
                f"{other.path}: images are {other.images.shape[1:]}, in {train.path.name} {train.images.shape[1:]} "
                "(H, W, C); expected the same"
            )
    classes = _classes_of(train, test) if labels else ()
    unlabeled = None if more is None else _image_set(name, more, (), False)
    train_set = _image_set(name, train, classes, labels)
    if test is None:
        splits = _hold_out(train_set, unlabeled, together)
    else:
        splits = Splits(train_set, _image_set(name, test, classes, labels), unlabeled, split="train.npz and test.npz")
    unused = [] if whole else [each for each in NOT_READ if (path / each).is_file()]
    return replace(splits, split=f"{splits.split}; {' and '.join(unused)} not used") if unused else splits


@source(".npz")
def open_npz_file(path: Path, *, labels: bool, together: bool) -> Splits:
    """Open one .npz file."""
    return open_npz(path, labels=labels, together=together)


def read_npz(path: Path) -> NpzArrays:
    """Read and check one .npz file."""
    arrays, found = _arrays(path)
    if "images" not in arrays:
        raise UserError(f"{path}: no `images` ({'holds ' + ', '.join(found) if found else 'is empty'}); {EXPECTED}")
    images = arrays["images"]
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape:
        raise UserError(f"{path}: `images` is {images.dtype} {images.shape}; expected uint8 (N, H, W, C) or (N, H, W)")
    images = images[..., None] if images.ndim == 3 else images  # (N, H, W, C)
    if images.shape[1] <= 4 < images.shape[3]:
        raise UserError(f"{path}: `images` {images.shape} looks like (N, C, H, W); expected (N, H, W, C)")
    labels, classes = arrays.get("labels"), arrays.get("classes")
    if labels is None:
        return NpzArrays(path, images, None, None)
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        raise UserError(f"{path}: `labels` is {labels.dtype} {labels.shape}; expected whole numbers ({len(images)},)")
    if (low := int(labels.min())) < 0 or int(labels.max()) >= MOST_CLASSES:
        raise UserError(f"{path}: `labels` has {low if low < 0 else int(labels.max())}; expected numbers from 0")
    names = None if classes is None else _class_names(path, classes)
    return NpzArrays(path, images, labels.astype(np.int64), names)


def write_npz(path: Path, images: np.ndarray, labels: np.ndarray | None, classes: tuple[str, ...]) -> None:
    """Write a set in this layout, completely or not at all: images uint8 (N, H, W, C), uncompressed to open fast."""
    arrays: dict[str, np.ndarray] = {"images": images}
    if labels is not None:
        arrays |= {"labels": labels.astype(np.int64), "classes": np.array(classes)}
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def _arrays(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read the arrays in WANTED, and list the names of all."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            arrays = {name: _array(path, archive, entries[name]) for name in WANTED if name in entries}
            return arrays, sorted(entries)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except MemoryError as error:
        raise UserError(f"{path}: does not fit into memory; take fewer images, or a folder of image files") from error
    except Exception as error:  # a damaged archive raises from zipfile, zlib, struct, tokenize or numpy
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(f"{path}: not a readable .npz file ({reason}); write it with numpy.savez") from error


def _array(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    name = entry.filename.removesuffix(".npy")
    with archive.open(entry) as file:
        header = npy.read_array_header_1_0 if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = header(file)
        if dtype.hasobject:
            raise UserError(f"{path}: `{name}` holds Python objects, which are not loaded; {EXPECTED}")
        announced = file.tell() + dtype.itemsize * int(np.prod(shape, dtype=object))
        if announced != entry.file_size:
            raise UserError(
                f"{path}: `{name}` has {entry.file_size} bytes, its header says {announced}; write it again"
            )
    with archive.open(entry) as file:
        return npy.read_array(file, allow_pickle=False)


def _class_names(path: Path, classes: np.ndarray) -> tuple[str, ...]:
    if classes.dtype.kind not in "US" or classes.ndim != 1:
        raise UserError(f"{path}: `classes` is {classes.dtype} {classes.shape}; expected a list of names")
    names = tuple(name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in classes.tolist())
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise UserError(f"{path}: `classes` has {twice!r} twice; expected one name a class")
    return names


def _classes_of(train: NpzArrays, test: NpzArrays | None) -> tuple[str, ...]:
    """The class names by label: those that either file gives, else the numbers."""
    parts = [train] if test is None else [train, test]
    labeled = [part for part in parts if part.labels is not None]
    if not labeled:
        return ()
    if len(labeled) < len(parts):
        lacks = next(part.path for part in parts if part.labels is None)
        raise UserError(f"{lacks}: no `labels`, though {labeled[0].path.name} has some; expected both or neither")
    given = {part.classes for part in labeled if part.classes is not None}
    if len(given) > 1:
        raise UserError(f"{train.path.parent}: train.npz and test.npz have different `classes`; expected the same")
    highest = max(int(part.labels.max()) for part in labeled if part.labels is not None)
    classes = given.pop() if given else tuple(str(label) for label in range(highest + 1))
    if highest >= len(classes):
        raise UserError(f"{train.path}: `labels` has {highest}, `classes` only {len(classes)} names; expected one each")
    if test is not None and test.labels is not None and train.labels is not None:
        unseen = np.setdiff1d(test.labels, train.labels)
        if len(unseen):
            raise UserError(
                f"{test.path}: class '{classes[unseen[0]]}' is not in train.npz; expected every class there"
            )
    return classes


def _image_set(name: str, part: NpzArrays, classes: tuple[str, ...], labeled: bool) -> ImageSet:
    pixels = torch.from_numpy(part.images).permute(0, 3, 1, 2).contiguous()  # three times as fast as in numpy
    labels = torch.from_numpy(part.labels) if labeled and part.labels is not None else None
    return ImageSet(name, pixels, labels, classes, channels=pixels.shape[1])


def held_out_of_one(whole: ImageSet, alike: np.ndarray | None) -> np.ndarray:
    """Mark the images of a single file to hold out: bool (N,); alike: the result of `copies`."""
    groups = np.zeros(len(whole), np.int64) if whole.labels is None else whole.labels.numpy()
    return held_out(groups, random_keys(0, HELD_OUT, len(whole)), alike)


def _hold_out(whole: ImageSet, unlabeled: ImageSet | None, together: bool) -> Splits:
    parts = [whole] if unlabeled is None else [whole, unlabeled]
    alike = copies(part.source for part in parts) if together else None
    test = held_out_of_one(whole, None if alike is None else alike[: len(whole)])
    if not test.any():
        return Splits(whole, None, unlabeled, split="no image held out: too few")
    if unlabeled is not None and alike is not None:
        left = np.flatnonzero(~np.isin(alike[len(whole) :], alike[: len(whole)][test]))
        unlabeled = unlabeled.take(left) if len(left) else None
    split = "a tenth held out, balanced, by a hash of the position"
    return Splits(whole.take(np.flatnonzero(~test)), whole.take(np.flatnonzero(test)), unlabeled, split=split)
