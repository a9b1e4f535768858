"""Where this user's downloads and remembered answers live. Needs no torch."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from dualtemp.errors import UserError

NOTE = ".of"  # ending of the file beside a shard's copy that records the shard's place


def cache_folder() -> Path:
    """Return the cache folder: DUALTEMP_DATA, else `dualtemp` in the user's cache folder."""
    if given := os.environ.get("DUALTEMP_DATA"):
        return _at_home(given)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = os.environ.get("XDG_CACHE_HOME") or "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _at_home(base) / "dualtemp"


def features_folder() -> Path:
    """Where `search`, `near-duplicates` and others keep features: one file for each list of images and encoder."""
    return cache_folder() / "features"


def shards_folder() -> Path:
    """Where indexes of shards are kept; copies of shards are in its subfolder `copies`."""
    return cache_folder() / "shards"


def mark_used(path: Path) -> None:
    """Set a file's time to now: `clean --older-than` and the shard cache remove what was not used for longest."""
    with suppress(OSError):
        os.utime(path)


def _at_home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(
            f"there is no home directory, so data cannot be kept in {path}: set DUALTEMP_DATA to a folder"
        ) from None
