"""Refuse an output file that is read: one that the user named, or one that a run, a set or an index reads by itself."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dualtemp.atomic_write import refuse_input
from dualtemp.data.shards.hub import HUB
from dualtemp.data.shards.locations import ENDINGS, divide, find_shards, is_shard_folder, looks_like_shards
from dualtemp.data.shards.remote import is_remote
from dualtemp.data.sources.label_file import AUTO, LABEL_FILE
from dualtemp.data.sources.npz import FILES, is_npz_folder
from dualtemp.encoder.index_file import index_paths
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder


def refuse_overwriting(
    out: Path | None, run: Path | str, *given: Path | str | None, index: Path | str | None = None
) -> None:
    """Raise UserError if `out` is one of the given sources, or a file that they, the run or the index read."""
    refuse_input(out, *given)
    if out is None or not out.exists():
        return
    for source in (*given, *_read_by_run(Path(run)), *_read_by_index(index)):
        if source is not None and _reads(source, out):
            raise UserError(f"--out {out} is read as a part of {source}, and would be overwritten: give another name")


def _read_by_run(run: Path) -> Iterator[str]:
    with suppress(UserError, OSError):  # a start, or no run: whoever opens it says so
        settings = RunFolder(run).settings()
        yield settings.data
        if settings.labels_from not in (None, AUTO):
            yield str(settings.labels_from)


def _read_by_index(index: Path | str | None) -> Iterator[str]:
    if index is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):  # whoever opens it says so
            yield str(json.loads(index_paths(Path(index))[2].read_text(encoding="utf-8"))["path"])


def _reads(source: Path | str, out: Path) -> bool:
    path, real = Path(os.path.expanduser(source)), os.path.realpath(out)
    if out.is_dir():  # parts are written into it, and shards may have the names of parts
        return any(os.path.dirname(shard) == real for shard in _shards(path, str(source)))
    if real == os.path.realpath(path) or real in _shards(path, str(source)):
        return True
    own = FILES if is_npz_folder(path) else (LABEL_FILE,)
    return path.is_dir() and os.path.dirname(real) == os.path.realpath(path) and out.name in own


def _shards(path: Path, source: str) -> set[str]:
    """The local shards that are read of a source: of a folder, one alone, or those that braces or a pattern name."""
    if is_remote(source) or source.startswith(HUB):
        return set()
    with suppress(UserError, OSError):
        folder = path.is_dir() and not is_npz_folder(path) and is_shard_folder(path)
        if folder or looks_like_shards(source) or path.suffix.lower() in ENDINGS:
            parts = divide(find_shards(source)).shards.values()
            return {os.path.realpath(shard.place) for part in parts for shard in part}
    return set()
