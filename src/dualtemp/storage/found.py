"""Find caches, checkpoints, and temporary files that killed processes left on disk. Needs no torch."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from dualtemp.cache_folder import NOTE, cache_folder, features_folder, shards_folder
from dualtemp.errors import UserError
from dualtemp.file_lock import held
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.status import Status, status_at_rest, status_of

DAY = 86_400.0  # seconds; a temporary file written to more recently may still be in use


class Kind(StrEnum):
    """What a file is for, in the order of the table."""

    FEATURES = "features"
    INDEXES = "indexes of shards"
    COPIES = "copies of shards"
    SETS = "data sets"
    CHECKPOINTS = "checkpoints"
    TEMPORARY = "temporary files"


class Stored(NamedTuple):
    """A file, a shard's copy with its note, or a folder that is one thing.

    used: when it was last written or used, seconds since 1970; lock: the file whose lock protects it, None if it needs
    no lock; kept: why it may not be freed, "" if it may; note: a small file that goes with it.
    """

    kind: Kind
    path: Path
    size: int
    used: float
    lock: Path | None = None
    kept: str = ""
    note: Path | None = None


def in_cache() -> list[Stored]:
    """Everything in the cache folder."""
    return [*_features(), *_shards(), *_sets()]


def in_run(path: Path) -> list[Stored]:
    """Checkpoints and abandoned temporary files of a run."""
    run = RunFolder.open(path)
    try:
        status = status_of(run)
    except UserError as error:
        status = Status("failed", str(error))
    return of_run(run, status)


def of_run(run: RunFolder, status: Status | None = None) -> list[Stored]:
    """The same for a run of known status; None: at rest, because this process holds its lock."""
    status = status or status_at_rest(run)
    kept = "a process is writing this run" if status.word == "running" else ""
    steps = sorted(run.checkpoints.glob("step-*.ckpt"))
    finished = status.word == "done" and _is_complete(run, steps)
    found: list[Stored] = []
    for path in steps:
        newest = path == steps[-1] and not finished
        reason = kept or ("the newest of a run that is not finished" if newest else "")
        found += _stored(Kind.CHECKPOINTS, path, run.lock, reason)
    for folder in (run.path, run.checkpoints):
        for part in sorted(folder.glob(".*.part")):
            found += _stored(Kind.TEMPORARY, part, run.lock, kept or in_use(part))
    return found


def _is_complete(run: RunFolder, steps: list[Path]) -> bool:
    """Whether the newest checkpoint can be freed without loss: it is the last epoch's, and the weights are written.

    A run with one line of metrics keeps it: `resume` could not tell that a checkpoint was freed, and would begin anew.
    """
    history = run.history()
    last = history[-1].get("step") if len(history) > 1 else None
    return run.backbone.is_file() and bool(steps) and steps[-1].stem == f"step-{last or 0:010d}"


def in_use(part: Path) -> str:
    """Why a temporary file may still be in use; "" if it is abandoned."""
    if part.is_file() and held(part):
        return "a process is writing it"
    return "written less than a day ago" if time.time() - _newest(part) < DAY else ""


def _features() -> Iterator[Stored]:
    for path in _files(features_folder()):
        if not path.name.startswith("."):
            lock = path.with_name(f".{path.name}.lock")
            yield from _stored(Kind.FEATURES, path, lock, "a process is using it" if held(lock) else "")


def _shards() -> Iterator[Stored]:
    for path in _files(shards_folder()):
        lock = path.with_suffix(".lock")
        if path.name.startswith("."):
            yield from _stored(Kind.TEMPORARY, path, None, in_use(path))
        elif path.suffix != ".lock":
            yield from _stored(Kind.INDEXES, path, lock, "a process is using it" if held(lock) else "")
    yield from _copies(_files(shards_folder() / "copies"))


def _copies(files: list[Path]) -> Iterator[Stored]:
    """Copies of shards, each with the note that records its shard's place; a note without its copy is an item too."""
    notes = {path for path in files if path.suffix == NOTE}
    copied: set[Path] = set()
    for path in files:
        if path.name.startswith("."):
            yield from _stored(Kind.TEMPORARY, path, None, in_use(path))
        elif path not in notes:  # no lock: a reader that misses its copy reads the shard itself
            note = path.with_suffix(NOTE)
            copied.add(note)
            yield from _stored(Kind.COPIES, path, None, "", note if note in notes else None)
    for note in sorted(notes - copied):
        yield from _stored(Kind.COPIES, note, None, "")


def _sets() -> Iterator[Stored]:
    """Downloaded sets, which are never freed; and unfinished folders of sets that killed processes left."""
    with suppress(OSError):
        for path in sorted(cache_folder().iterdir()):
            if not path.is_dir() or path in (features_folder(), shards_folder()):
                continue
            if path.name.startswith("."):
                lock = path.with_name(f"{path.name.rpartition('-')[0]}.lock")
                reason = "a process is making it" if held(lock) else in_use(path)
                yield from _stored(Kind.TEMPORARY, path, lock, reason)
            else:
                yield from _stored(Kind.SETS, path, None, "images are never freed; delete the folder if you like")


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.is_symlink())
    except OSError:  # no such folder
        return []


def _stored(kind: Kind, path: Path, lock: Path | None, kept: str, note: Path | None = None) -> Iterator[Stored]:
    with suppress(OSError):  # it has been freed meanwhile
        size = _size(path) + (0 if note is None else _size(note))
        yield Stored(kind, path, size, _newest(path), lock, kept, note)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in _all_files(path))


def _newest(path: Path) -> float:
    """When a file, or anything in a folder, was last written."""
    return max((os.stat(file).st_mtime for file in (path, *_all_files(path))), default=0.0)


def _all_files(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder) / name for name in names if not os.path.islink(Path(folder) / name))
