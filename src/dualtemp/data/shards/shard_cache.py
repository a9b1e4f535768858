"""Local copies: of remote tar shards as they are, of remote or compressed Parquet shards the decompressed images.

They are in the cache folder, under names that change with the shard, and take up to DUALTEMP_SHARD_CACHE bytes (20GB; 0
keeps none); new ones take at most half of the disk's free space. Copies of other sets are removed to make room, the
least recently used first.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from dualtemp.cache_folder import NOTE, mark_used, shards_folder
from dualtemp.data.shards.shard_index import ShardFile
from dualtemp.errors import UserError
from dualtemp.quantities import bytes_of

VARIABLE, USUAL = "DUALTEMP_SHARD_CACHE", "20GB"
COPY, IMAGES = ".copy", ".images"  # endings: the shard as it is; its images, concatenated


def cached_path(place: str, stamp: str, kind: str) -> Path:
    """The path of a shard's copy, whether it exists or not."""
    key = blake2b(f"{place}\0{stamp}".encode(errors="surrogateescape"), digest_size=16).hexdigest()
    return shards_folder() / "copies" / f"{key}{kind}"


@cache
def find_copy(file: ShardFile) -> tuple[str, str] | None:
    """The path and the kind of a shard's copy; None if there is none. Each process looks once."""
    for kind in (IMAGES, COPY):
        path = cached_path(file.place, file.stamp, kind)
        if path.is_file():
            mark_used(path)
            return str(path), kind
    return None


def budget() -> int:
    """The bytes that copies may take, from the environment."""
    given = os.environ.get(VARIABLE, USUAL)
    if given.strip() in ("", "0"):
        return 0
    try:
        return bytes_of(given)
    except UserError as error:
        raise UserError(f"{VARIABLE}: {error}") from None


@contextmanager
def copying(place: str, stamp: str, kind: str, size: int, keep: frozenset[str]) -> Iterator[BinaryIO | None]:
    """Open a file for a shard's copy of about `size` bytes; None if there is no room. Kept if the block succeeds.

    keep: places whose copies are not removed to make room.
    """
    path = cached_path(place, stamp, kind)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(part, "wb") if _reserve(path, size, keep) else None  # noqa: SIM115
    except OSError:
        file = None
    if file is None:
        yield None
        return
    try:
        with file:
            yield file
        _note(path, place)
        part.replace(path)
        find_copy.cache_clear()
    finally:
        _reserved.pop(path, None)
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _note(path: Path, place: str) -> None:
    """Record the place of a copy's shard in a file beside it."""
    path.with_suffix(NOTE).write_text(place, errors="surrogateescape")


_lock = threading.Lock()
_reserved: dict[Path, int] = {}  # bytes of the copies that are being made


def _reserve(path: Path, size: int, keep: frozenset[str]) -> bool:
    with _lock:
        room = _has_room(path.parent, size + sum(_reserved.values()), keep)
        if room:
            _reserved[path] = size
        return room


def _has_room(folder: Path, size: int, keep: frozenset[str]) -> bool:
    taken = _taken(folder)
    most = min(budget(), taken + shutil.disk_usage(folder).free // 2)
    if size > most:
        return False
    for path in sorted(_copies(folder), key=lambda each: each.stat().st_mtime):
        if taken + size <= most:
            break
        taken -= _removed(path, keep)
    return taken + size <= most


def _removed(path: Path, keep: frozenset[str]) -> int:
    """Remove a copy and the note beside it, unless its place is in `keep`; returns the bytes that this frees."""
    freed = 0
    with contextlib.suppress(OSError):
        if _place(path) not in keep:
            length = path.stat().st_size
            path.unlink()
            freed = length
            path.with_suffix(NOTE).unlink(missing_ok=True)
    return freed


def _place(path: Path) -> str | None:
    """The place of a copy's shard; None if the note beside the copy is gone."""
    try:
        return path.with_suffix(NOTE).read_text(errors="surrogateescape")
    except FileNotFoundError:
        return None


def _copies(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in (COPY, IMAGES) and not path.name.startswith(".")]


def _taken(folder: Path) -> int:
    found = 0
    for path in _copies(folder):
        with contextlib.suppress(OSError):
            found += path.stat().st_size
    return found
