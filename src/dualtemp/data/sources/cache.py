"""The cache folder of downloaded sets, to which a set is added completely or not at all."""

import math
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from dualtemp.cache_folder import cache_folder as cache_folder
from dualtemp.errors import UserError
from dualtemp.file_lock import locked


def cached_set(name: str) -> Path | None:
    """Return the folder of a set (train.npz, test.npz) if it is in the cache, else None."""
    folder = cache_folder() / name
    return folder if (folder / "train.npz").is_file() else None


def fill(name: str, make: Callable[[Path], None]) -> Path:
    """Return a set's folder in the cache; if it is missing, let `make` fill a temporary folder, then rename that.

    A process that is killed leaves at most a hidden temporary folder, never a set that looks whole. Of several
    processes that want the same set, one makes it and the others wait.
    """
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f".{name}.lock", patience=math.inf):
            return cached_set(name) or _made(name, cache, make)
    except OSError as error:
        raise UserError(
            f"{name} cannot be kept in {cache} ({error.strerror or error}): make that folder writable and free some "
            "space, or set DUALTEMP_DATA to another folder"
        ) from error


def _made(name: str, cache: Path, make: Callable[[Path], None]) -> Path:
    for left in cache.glob(f".{name}-*"):  # by a killed process: we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache))
    try:
        (work / "set").mkdir()
        make(work / "set")
        for file in (work / "set").iterdir():
            _sync(file)
        _take_over(work / "set", cache / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return cache / name


def _take_over(made: Path, target: Path) -> None:
    """Move finished files into place: as a whole folder, or, if the user has that folder already, train.npz last."""
    if not target.exists():
        made.rename(target)
        return
    for file in sorted(made.iterdir(), key=lambda file: file.name == "train.npz"):
        file.replace(target / file.name)


def _sync(file: Path) -> None:
    with open(file, "rb+") as handle:
        os.fsync(handle.fileno())
