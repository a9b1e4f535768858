"""A file is written whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dualtemp.errors import UserError


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` for writing; once it is complete and on the disk it takes the path's place.

    If anything goes wrong within, the temporary file is removed, and what lay at `path` is as it was.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _settle(path.parent)
    finally:
        part.unlink(missing_ok=True)


def write_output(path: Path, content: str | bytes, flag: str = "--out") -> None:
    """Write what a user asked for at a path, whole; its folder is made. `flag` is what to give another path with."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror or error}): give another {flag}") from None


def _settle(folder: Path) -> None:
    """Bring the new name itself to the disk, where the system lets a folder be opened."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
