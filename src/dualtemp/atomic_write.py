"""Atomic writes: a file is written completely, or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dualtemp.errors import UserError, writing
from dualtemp.file_lock import open_locked, remove_abandoned

# A run's own records (runs/folder.py, evaluation): `--out` of a command must never overwrite one.
RUN_RECORDS = frozenset(
    ("config.yaml", "environment.json", "metrics.jsonl", "evaluation.json", "judge.json", "pictures.json")
)
_END, _LONGEST = ".part", 50  # characters taken from the target's name, so that the temporary name is never too long


@contextlib.contextmanager
def whole_file(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` for writing; when the block ends, sync it to disk and rename it to `path`.

    If the block raises, the temporary file is removed and `path` is left as it was. A temporary file left by a killed
    process is removed by the next process that writes to the same path. With sync=False the system decides when the
    file reaches the disk: it survives the end of the process, but perhaps not a power cut. A pipe or a device is
    written to directly, since renaming would replace it by a regular file.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with open(path, "wb") as file:
            yield file
        return
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
            if sync:
                os.fsync(file.fileno())
            if os.name == "posix":
                part.replace(path)  # while locked, so that no other process removes it as abandoned
        if os.name != "posix":
            part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            part.unlink(missing_ok=True)
        raise
    if sync:
        _settle(path.parent)


def write_output(path: Path, content: str | bytes, flag: str = "--out") -> None:
    """Write a file that a user asked for, atomically, and create its folder. `flag`: the option that names the path.

    Text may hold file names that are not valid UTF-8; such characters are written as backslash escapes.
    """
    with writing(path, f"give another {flag}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


def refuse_input(out: Path | None, *inputs: str | Path | None) -> None:
    """Raise UserError if `out` is one of the inputs or a run's own record."""
    if out is not None and out.name in RUN_RECORDS and os.path.isfile(out.parent / "config.yaml"):
        raise UserError(f"--out {out} is a file of a run, and would be overwritten: give another file's name")
    for given in inputs:
        if out is not None and given is not None and os.path.realpath(out) == os.path.realpath(given):
            raise UserError(f"--out {out} is what is read, and would be overwritten: give another file's name")


def _settle(folder: Path) -> None:
    """Sync the folder, so that the new name reaches the disk; only where the folder can be opened."""
    if os.name == "posix":
        with contextlib.suppress(OSError):  # not a failure: the file itself is complete and in place
            opened = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
