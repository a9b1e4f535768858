"""One writer at a time: a lock that the system lets go when its process ends, however that is."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dualtemp.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import msvcrt
except ImportError:
    msvcrt = None

PATIENCE = 3.0  # seconds; reading processes of a run that was killed hold its lock for a moment longer


class Busy(UserError):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: Path, patience: float = PATIENCE, what: object = None, remove: bool = False) -> Iterator[None]:
    """Hold the lock file `path`, in an existing folder; where the system knows no locks, nothing is held.

    Args:
        path: of the lock file. Whoever holds it may remove it: a lock that no longer has its name is worth nothing.
        patience: seconds to wait for another process.
        what: names what is being written, if another process has it; default: the folder.
        remove: take the lock file away in the end.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            file = open(path, "ab")  # noqa: SIM115  closed below
        except OSError as error:
            raise UserError(
                f"{path.parent} cannot be written ({error.strerror}): make it writable, or give another folder"
            ) from None
        with file:
            while not _taken(file):
                if time.monotonic() > deadline:
                    raise Busy(f"{what or path.parent} is being written by another process: wait for it, or end it")
                time.sleep(0.1)
            # The last holder may have removed the file while this process waited, and another one made a new file.
            if not _has_name(file, path):
                continue
            try:
                yield
            finally:
                if remove:
                    with contextlib.suppress(OSError):  # Windows removes no open file
                        path.unlink()
            return


def held(path: Path) -> bool:
    """Whether a process holds the lock file `path` now; asks without waiting, and takes nothing from whoever holds it.

    The question is a shared lock for a moment, so that any number may ask at once.
    """
    try:
        with open(path, "rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            return not _taken(file)  # given back when the file is closed
    except BlockingIOError:
        return True
    except OSError:  # no such file, or a file system without locks
        return False


def _has_name(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError:
        return False


def _taken(file: BinaryIO) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore
    except BlockingIOError:
        return False
    except OSError:
        return fcntl is not None  # a file system without locks; msvcrt says so when another process has it
    return True
