"""Pack a folder of images into tar shards that hold the same set: same names, order, labels, parts and fingerprint.

OUT/000000.tar ...                          or OUT/train/000000.tar and OUT/test/000000.tar, if the folder has parts
OUT/classes.txt                             the names of the classes, by number

A member has the name of its file; next to it is NAME.cls with the number of the class. Times and owners are left out,
so that the same folder gives the same bytes. A shuffled set is in the order of a hash of the names instead: every shard
then has images of all classes, which training needs if it reads few shards at a time.
"""

import io
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dualtemp.data.shards.labels import CLASSES_FILE
from dualtemp.data.sources.folder import Part, folder_parts, name_keys
from dualtemp.errors import UserError, writing
from dualtemp.file_lock import locked

SHARD_SIZE = 256_000_000  # bytes


@dataclass(frozen=True)
class Packed:
    """Numbers of images, shards, bytes and classes written."""

    images: int
    shards: int
    bytes: int
    classes: int


def pack_folder(
    folder: Path,
    out: Path,
    *,
    shard_size: int = SHARD_SIZE,
    labels: bool = True,
    shuffle: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Packed:
    """Write the images of a folder as shards of about `shard_size` bytes into a new folder.

    shuffle: write images in the order of a hash of their names, not in the folder's order, class by class.

    Everything is written beside `out` and renamed at the end, so that a killed process leaves no partial set. Raises
    UserError if `out` exists already, or if an image file cannot be read.
    """
    out = Path(os.path.abspath(out))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already: give a folder that is not, or remove it")
    if out.is_relative_to(folder.resolve()):
        raise UserError(f"{out} is inside the folder to be packed: give a place outside it")
    parts = folder_parts(folder, labels)
    if shuffle:
        parts = {word: _shuffled(part, word) for word, part in parts.items()}
    classes = sorted({name for part in parts.values() for name in part.folders} - {""})
    if broken := next((name for name in classes if len(name.splitlines()) > 1), None):
        raise UserError(f"{folder}: the class folder {broken!r} has a line break in its name; rename it")
    _refuse_two_labels(folder, parts)
    with writing(out, "free some space, or give another --to"):
        out.parent.mkdir(parents=True, exist_ok=True)
        work = out.with_name(f".{out.name}.packing")
        with locked(out.with_name(f".{out.name}.lock"), what=out, remove=True):
            shutil.rmtree(work, ignore_errors=True)  # left by a process that was killed
            try:
                packed = _write(folder, work, parts, classes, shard_size, progress)
                if out.exists():
                    out.rmdir()
                work.rename(out)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return packed


def _refuse_two_labels(folder: Path, parts: dict[str, Part]) -> None:
    """Raise UserError if images with different labels would be one sample, which has a single label."""
    for part in parts.values():
        first: dict[str, tuple[str, str]] = {}
        for name, label in zip(part.names, part.folders, strict=True):
            other, known = first.setdefault(_key(name), (name, label))
            if known != label:
                raise UserError(
                    f"{folder}: {other} and {name} have one name up to the first dot, so that they are one sample of "
                    f"a shard, but two labels, {known!r} and {label!r}: rename one of them"
                )


def _shuffled(part: Part, word: str) -> Part:
    """The images in the order of their keys' hashes, so that images of one sample stay together."""
    keys = name_keys(_key(name.removeprefix(f"{word}/") if word else name) for name in part.names)
    order = np.argsort(keys, kind="stable").tolist()
    return Part([part.names[i] for i in order], [part.folders[i] for i in order])


def _write(
    folder: Path,
    work: Path,
    parts: dict[str, Part],
    classes: list[str],
    shard_size: int,
    progress: Callable[[int, int], None] | None,
) -> Packed:
    number = {name: str(i).encode() for i, name in enumerate(classes)}
    total, done, made = sum(len(part.names) for part in parts.values()), 0, []
    for word, part in parts.items():
        with _ShardWriter(work / word, shard_size) as shards:
            labeled = ""  # the last key with a label: a sample may have two images
            for name, class_folder in zip(part.names, part.folders, strict=True):
                member = name.removeprefix(f"{word}/") if word else name
                shards.add(member, _content(folder, name))
                if class_folder and _key(member) != labeled:
                    shards.add(f"{_key(member)}.cls", number[class_folder], beside=True)
                    labeled = _key(member)
                done += 1
                if progress is not None:
                    progress(done, total)
        made += shards.sizes
    if classes:
        text = "".join(f"{name}\n" for name in classes)
        (work / CLASSES_FILE).write_bytes(text.encode(errors="surrogateescape"))
    return Packed(total, len(made), sum(made), len(classes))


def _content(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise UserError(
            f"{folder / name} cannot be read ({error.strerror}): repair it or remove it from the folder"
        ) from error


def _key(member: str) -> str:
    """A member's key in WebDataset: its path up to the first dot of its file name."""
    folder, slash, last = member.rpartition("/")
    return folder + slash + last.partition(".")[0]


class _ShardWriter:
    """Writes members into 000000.tar, 000001.tar, ... of a folder; a sample is never divided."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.size = folder, size
        self.sizes: list[int] = []
        self._key = ""
        self._file: BinaryIO | None = None
        self._archive: tarfile.TarFile | None = None

    def add(self, name: str, content: bytes, beside: bool = False) -> None:
        """Add a member, to a new shard if the last one is full; beside: it belongs to the member before."""
        if not beside and _key(name) != self._key and (self._archive is None or self._archive.offset >= self.size):
            self._finish()
            self._file = open(self.folder / f"{len(self.sizes):06}.tar", "wb")  # noqa: SIM115
            self._archive = tarfile.open(fileobj=self._file, mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115
        assert self._archive is not None
        header = tarfile.TarInfo(name)
        header.size, self._key = len(content), _key(name)
        self._archive.addfile(header, io.BytesIO(content))
        self._archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]  (it would keep all of them)

    def _finish(self) -> None:
        if self._archive is not None and self._file is not None:
            self._archive.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self.sizes.append(self._file.tell())
            self._file.close()
            self._archive = self._file = None

    def __enter__(self) -> "_ShardWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._finish()
