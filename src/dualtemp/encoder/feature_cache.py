"""A cache of the features that `search` and `near-duplicates` have computed.

It is the folder `features` in the cache folder (`dualtemp data` prints its path; DUALTEMP_DATA moves it), with one file
for each list of images and encoder. The file's name is a hash of everything that determines the features: weights, size
and normalization; names, lengths and times of the files, or the pixels of a set; batch, versions, readers. Every record
has a checksum. Features are computed again from the first damaged record on, or from the first record that lacks an
image which was unreadable then but can be read now. Together the files take at most LIMIT bytes: the least recently
used are removed first. If the folder cannot be written to, nothing is cached and everything else works.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path

from dualtemp.cache_folder import features_folder
from dualtemp.data.loading.optional_readers import has_reader
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.encoder.feature_records import EncodingOptions, feature_records, features_facts
from dualtemp.encoder.image_list import ImageList
from dualtemp.errors import UserError
from dualtemp.file_lock import Busy, held, locked
from dualtemp.runs.work_file import Record, WorkFile

LIMIT = 2 << 30  # bytes of all files together


def cached_records(
    encoder: RunEncoder,
    images: ImageList,
    options: EncodingOptions,
) -> Iterator[Record]:
    """Yield the features of a list of images: first those in the cache, then computed ones, which are added to it.

    A note says how many were in the cache, or why they cannot be kept. Without `options.cache` the cache is not used.
    """
    with ExitStack() as stack:
        kept = _open(encoder, images, options, stack) if options.cache else None

        def on_resume(text: str) -> None:
            options.tell(f"{text}: taken from {features_folder()}; --no-cache computes them anew")

        yield from feature_records(kept, encoder, images, options, on_resume)


class _Kept:
    """A file of records. Once reading or writing it fails, nothing more is kept."""

    def __init__(self, work: WorkFile, tell: Callable[[str], None]) -> None:
        self.work, self.tell, self.broken, self.empty = work, tell, False, True

    def records(self) -> Iterator[Record]:
        try:
            for record in self.work.records():
                self.empty = False
                yield record
        except OSError as error:
            self._give_up(error)

    def cut(self) -> None:
        try:
            self.work.cut()
        except OSError as error:
            self._give_up(error)

    def append(self, record: Record) -> None:
        if self.broken or not len(record.index):  # a record of unreadable files alone: try them again next time
            return
        try:
            self.work.append(record)
            self.empty = False
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        with suppress(OSError):  # closing tries once more to write what is buffered
            self.work.close()
        if self.empty:
            with suppress(OSError):
                self.work.path.unlink()

    def _give_up(self, error: OSError) -> None:
        self.broken = True
        with suppress(OSError):
            self.work.path.unlink()
        _tell_not_kept(self.tell, error)


def _open(encoder: RunEncoder, images: ImageList, options: EncodingOptions, stack: ExitStack) -> _Kept | None:
    """Open and lock the file for these images; None if there cannot be one, or another process is writing it."""
    size = len(images) * (8 + 4 * encoder.width)
    if size > LIMIT:
        return None
    facts = {**features_facts(encoder, images), "batch": options.batch, "mirrored": options.mirrored}
    if not has_reader("tifffile"):  # once it is installed, more files can be read
        facts["without"] = "tifffile"
    name = blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
    try:
        path = features_folder() / name
        missing = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        stack.callback(_remove_empty, missing)
        stack.enter_context(locked(_lock(path), patience=1.0, remove=True))
        _make_room(path, size)
        kept = _Kept(WorkFile(path, facts), options.tell)
        stack.callback(kept.close)
        os.utime(path)  # mark as recently used
    except Busy:
        return None
    except (OSError, UserError) as error:  # no home folder, a full disk
        _tell_not_kept(options.tell, error)
        return None
    return kept


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders that are still empty, innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _make_room(path: Path, size: int) -> None:
    """Remove the least recently used files until one of `size` bytes at `path` fits within the limit."""
    others: list[tuple[float, int, Path]] = []
    for file in path.parent.iterdir():
        with suppress(OSError):
            if file != path and not file.name.startswith("."):
                found = file.stat()
                others.append((found.st_mtime, found.st_size, file))
    total = size + sum(length for _, length, _ in others)
    for _, length, file in sorted(others):
        if total <= LIMIT:
            return
        if not held(_lock(file)):
            with suppress(OSError):
                file.unlink()
                total -= length


def _lock(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _tell_not_kept(tell: Callable[[str], None], error: Exception) -> None:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    tell(f"features are not kept for the next time ({reason}); DUALTEMP_DATA names another cache folder")
