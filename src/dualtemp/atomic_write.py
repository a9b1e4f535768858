"""A file is written whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dualtemp.errors import writing
from dualtemp.file_lock import open_locked, remove_abandoned

_END, _LONGEST = ".part", 50  # characters of the name; with those around it a name of any length stays possible


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` for writing; once it is complete and on the disk it takes the path's place.

    If anything goes wrong within, the temporary file is removed, and what lay at `path` is as it was. What a process
    that was killed has left of such a file is removed by the next one that writes to the same path.
    """
    start = f".{path.name[:_LONGEST]}."
    with contextlib.suppress(PermissionError):  # a folder that may be written to, but not listed
        for name in os.listdir(path.parent):
            if name.startswith(start) and name.endswith(_END):
                remove_abandoned(path.with_name(name))
    part = path.with_name(f"{start}{os.getpid()}-{secrets.token_hex(3)}{_END}")
    try:
        with open_locked(part) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "posix":
                part.replace(path)  # while it is locked: nobody may take it for abandoned
        if os.name != "posix":
            part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            part.unlink(missing_ok=True)
        raise
    _settle(path.parent)


def write_output(path: Path, content: str | bytes, flag: str = "--out") -> None:
    """Write what a user asked for at a path, whole; its folder is made. `flag` is what to give another path with."""
    with writing(path, f"give another {flag}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)


def _settle(folder: Path) -> None:
    """Bring the new name itself to the disk, where the system lets a folder be opened."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
