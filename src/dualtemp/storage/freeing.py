"""Free files, each under the lock that protects it, so that a process that starts meanwhile loses nothing."""

import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from dualtemp.errors import UserError
from dualtemp.file_lock import Busy, locked
from dualtemp.runs.folder import RunFolder
from dualtemp.storage.found import Kind, Stored, in_use, of_run


class Freed(NamedTuple):
    """What was deleted, and what was not, with the reason."""

    items: list[Stored]
    kept: list[tuple[Stored, str]]


def free(asked: Iterable[Stored]) -> Freed:
    """Delete what may be deleted; everything is checked again under its lock."""
    freed = Freed([], [])
    by_run: dict[Path, list[Stored]] = {}
    for item in asked:
        if item.lock is not None and (run := RunFolder(item.lock.parent)).lock == item.lock and run.config.is_file():
            by_run.setdefault(run.path, []).append(item)
        elif item.kept:
            freed.kept.append((item, item.kept))
        else:
            _free_cached(item, freed)
    for path, items in by_run.items():
        _free_in_run(RunFolder(path), items, freed)
    return freed


def _free_cached(item: Stored, freed: Freed) -> None:
    try:
        with ExitStack() as held:
            if item.lock is not None:
                held.enter_context(locked(item.lock, patience=0, remove=item.kind is not Kind.TEMPORARY))
            reason = in_use(item.path) if item.kind is Kind.TEMPORARY else ""
            if reason:
                freed.kept.append((item, reason))
                return
            _delete(item)
    except Busy:
        freed.kept.append((item, "a process is using it"))
    except OSError as error:
        freed.kept.append((item, error.strerror or str(error)))
    else:
        freed.items.append(item)


def _free_in_run(run: RunFolder, items: list[Stored], freed: Freed) -> None:
    """Free checkpoints and temporary files of one run, while holding its lock."""
    try:
        with locked(run.lock, patience=0):
            now = {item.path: item for item in of_run(run)}
            if any(item.kind is Kind.CHECKPOINTS for item in items):
                _require_sound_newest(list(now.values()))
            for item in items:
                if item.path not in now:
                    continue  # gone already
                if reason := now[item.path].kept:
                    freed.kept.append((item, reason))
                    continue
                _delete(item)
                freed.items.append(item)
    except (UserError, OSError) as error:  # Busy too
        reason = "a process is writing this run" if isinstance(error, Busy) else str(error)
        told = {item.path for item in freed.items} | {item.path for item, _ in freed.kept}
        freed.kept.extend((item, reason) for item in items if item.path not in told)


def _require_sound_newest(items: list[Stored]) -> None:
    """Raise UserError if the newest checkpoint of an unfinished run is damaged: older ones are then needed."""
    for item in items:
        if item.kind is Kind.CHECKPOINTS and item.kept:
            from dualtemp.runs.checkpoint import DamagedCheckpoint, read

            try:
                read(item.path)
            except DamagedCheckpoint as error:
                raise UserError(f"{error}: older checkpoints are still needed") from None


def _delete(item: Stored) -> None:
    if item.path.is_dir() and not item.path.is_symlink():
        shutil.rmtree(item.path)
    else:
        item.path.unlink()
    if item.note is not None:
        item.note.unlink(missing_ok=True)
