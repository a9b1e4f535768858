"""The folder of an export: made elsewhere and put in place whole, by one export at a time."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from glob import escape
from pathlib import Path

from dualtemp.errors import UserError, writing
from dualtemp.file_lock import Busy, locked

MANIFEST = "export.json"  # lists what was written
UNFINISHED = ".unfinished"  # how the names of an export's temporary folder and lock end
LOCK, FRESH = ".lock", "export"  # in a temporary folder
PATIENCE = 60.0  # seconds that an export waits while another one puts its files into the same folder


def refuse_other_content(out: Path) -> None:
    """Raise UserError if `out` holds anything but an export, or what a killed one has left."""
    with writing(out, "give another --out"):
        if out.exists() and (not out.is_dir() or (_holds_something(out) and not (out / MANIFEST).is_file())):
            raise UserError(f"{out} exists and is not an export: give another --out")


def _holds_something(folder: Path) -> bool:
    """Whether there is more in a folder than what an export that was killed has left."""
    return any(not (path.name.startswith(".") and path.name.endswith(UNFINISHED)) for path in folder.iterdir())


@contextlib.contextmanager
def workshop(out: Path) -> Iterator[Path]:
    """Yield a folder on the same disk as `out`, in which everything is made before it is put in place.

    It lies in a temporary one that is locked while the export lives: what killed exports have left is removed first.
    """
    missing = [folder for folder in out.parents if not folder.exists()]
    done = False
    try:
        with writing(out, "give another --out"), contextlib.ExitStack() as held:
            out.parent.mkdir(parents=True, exist_ok=True)
            with locked_folder(out):  # no other export looks for abandoned folders before this one is locked
                for place in (out, out.parent):
                    _remove_abandoned(place, out.name)
                where = out if out.is_dir() else out.parent
                temporary = tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=UNFINISHED, dir=where)
                folder = held.enter_context(temporary)
                held.enter_context(locked(Path(folder, LOCK), what=out))
            fresh = Path(folder, FRESH)  # the temporary folder itself is closed to others
            fresh.mkdir()
            yield fresh
        done = True
    finally:
        if not done:
            for folder in missing:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _remove_abandoned(place: Path, name: str) -> None:
    """Remove the temporary folders of exports to `name` that nobody holds any more."""
    for left in place.glob(f".{escape(name)}.*{UNFINISHED}"):
        with contextlib.suppress(OSError, Busy):  # another user's, or in use
            if (left / LOCK).is_file():
                with locked(left / LOCK, patience=0):
                    shutil.rmtree(left)


@contextlib.contextmanager
def locked_folder(out: Path) -> Iterator[None]:
    """Hold the lock of an export folder, or wait for it.

    The lock is in the folder, or beside it while it is missing. Whoever waited beside it may find the folder there
    afterwards, and then needs its lock too, because later exports take only that one.
    """
    beside, inside = out.parent / f".{out.name}.lock{UNFINISHED}", out / f".lock{UNFINISHED}"
    with contextlib.ExitStack() as held:
        if not out.is_dir():
            held.enter_context(locked(beside, PATIENCE, what=out, remove=True))
        if out.is_dir():
            held.enter_context(locked(inside, PATIENCE, what=out, remove=True))
        yield


def put_in_place(fresh: Path, out: Path, stale: list[str]) -> None:
    """Rename the folder if `out` is new; else replace its files one by one, atomically, the list of them last."""
    files = sorted(fresh.iterdir(), key=lambda file: file.name == MANIFEST)
    for file in files:
        with open(file, "rb") as content:
            os.fsync(content.fileno())
    if not out.is_dir():
        fresh.rename(out)
        return
    for file in stale:
        (out / file).unlink(missing_ok=True)
    for file in files:
        file.replace(out / file.name)
