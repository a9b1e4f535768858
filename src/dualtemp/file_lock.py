"""One writer at a time: a file lock that the system releases when its process ends, however it ends.

Some file systems, mostly on clusters, have no locks. There a process claims the path instead: it creates an empty file
beside it whose name identifies the process, looks for the claims of others, and withdraws if one of them is alive. Of
two processes the later one sees the earlier one's claim, so at most one continues. Claims of dead processes on this
machine are ignored. Whether a process on another machine is alive cannot be known: its claim stands until somebody
removes it.
"""

import contextlib
import errno
import hashlib
import os
import random
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dualtemp.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import msvcrt
except ImportError:
    msvcrt = None

PATIENCE = 3.0  # seconds; a process that is ending may hold its lock a moment longer
CLAIM = ".held-by."  # between the name of the lock file and the process
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


# Open files whose locks this process holds. A forked child shares them and would keep the locks after its parent ends.
_holding: set[BinaryIO] = set()


def _let_go_in_child() -> None:
    for file in _holding:
        file.close()  # this does not release the parent's lock
    _holding.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


class Busy(UserError):
    """Another process holds the lock."""


class NoLocks(OSError):
    """The file system has no locks."""


@contextlib.contextmanager
def locked(path: Path, patience: float = PATIENCE, what: object = None, remove: bool = False) -> Iterator[None]:
    """Hold the lock file `path`, which is created if needed, in an existing folder.

    Raises Busy if another process holds it for longer than `patience` seconds, OSError if it cannot be written.

    Args:
        path: a file used for nothing else; only its holder may remove it.
        patience: seconds to wait for another process; math.inf waits forever.
        what: names what is being written, for the message of Busy; default: the folder.
        remove: remove the lock file at the end; a process waiting for it notices and creates it again.
    """
    deadline, tries, pause = time.monotonic() + patience, 0, 0.001
    while True:
        with contextlib.ExitStack() as held:
            trouble = _acquire(path, held)
            if trouble is None:
                if remove:
                    # Remove it while we hold it: later, another process may have locked it.
                    held.callback(_remove, path)
                yield
                return
        tries += 1
        if tries > 3 and time.monotonic() >= deadline:  # `held` of another process may have blocked the first tries
            raise Busy(f"{what or path.parent} is being written by another process{trouble}: wait for it, or end it")
        time.sleep(pause * random.uniform(0.5, 1))  # random, so that two who claimed at once do not collide again
        pause = min(2 * pause, 0.1)


def held(path: Path) -> bool:
    """Whether a process holds the lock file `path` now; does not wait, and does not disturb the holder.

    It takes a shared lock for a moment, so that any number of processes may ask at once.
    """
    try:
        with open(path, "rb") as file:
            return not _try_lock(file, shared=True)  # closing the file releases it
    except NoLocks:
        return any(map(_may_live, _claims(path)))
    except OSError:  # no such file
        return False


def remove_abandoned(path: Path) -> None:
    """Remove a file that `open_locked` created if its process has ended; keep it if that cannot be known."""
    if fcntl is not None:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if _try_lock(file) and _is_at(file, path):
                path.unlink()  # while we hold the lock: an `open_locked` that waits for it notices


def open_locked(path: Path) -> BinaryIO:
    """Open a new file for writing; it stays locked while open, if the file system has locks."""
    while True:
        file = open(path, "wb")  # noqa: SIM115  closed by the caller
        with contextlib.suppress(OSError):
            while fcntl is not None and not _try_lock(file):
                time.sleep(0.001)
        if _is_at(file, path):  # else `remove_abandoned` removed it before we locked it
            return file
        file.close()


def _acquire(path: Path, held: contextlib.ExitStack) -> str | None:
    """Take the lock, which `held` releases on exit. Returns None on success, else what is known of the holder."""
    file = held.enter_context(open(path, "ab"))  # noqa: SIM115
    _holding.add(file)
    held.callback(_holding.discard, file)
    try:
        if not _try_lock(file):
            return ""
        # If its former holder removed the file after we opened it, we have locked nothing.
        return None if _is_at(file, path) else ""
    except NoLocks:
        return _claim(path, held)


def _try_lock(file: BinaryIO, shared: bool = False) -> bool:
    """Lock an open file without waiting; False if another process has it. Raises NoLocks."""
    try:
        if fcntl is not None:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        elif msvcrt is not None:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore
        else:
            raise NoLocks(errno.ENOSYS, "no locks")
    except BlockingIOError:
        return False
    except OSError as error:
        if fcntl is None and msvcrt is not None:
            return False  # msvcrt's error if another process has it
        if error.errno in _NO_LOCKS:
            raise NoLocks(error.errno, error.strerror) from None
        raise
    return True


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows: an open file cannot be removed
        path.unlink()


class _Process(NamedTuple):
    """host and machine: where it runs; started: distinguishes it from a later process with the same number."""

    host: str
    machine: str
    number: int
    started: str


def _claim(path: Path, held: contextlib.ExitStack) -> str | None:
    own = _this_process()
    name = f"{path.name}{CLAIM}{own.host}.{own.machine}.{own.number}.{own.started}.{secrets.token_hex(4)}"
    claim = path.with_name(name)
    claim.touch(exist_ok=False)
    held.callback(_remove, claim)
    others = _claims(path)
    for other in others - {name}:
        if _may_live(other):
            host, _, number = other.partition(CLAIM)[2].rsplit(".", 4)[:3]
            return f" (process {number} of {host}; if it has ended, remove {path.with_name(other)})"
    for other in others - {name}:
        _remove(path.with_name(other))  # its process is dead, and no other ever uses this name
    return None


def _claims(path: Path) -> set[str]:
    """The names of all claims on `path`."""
    return {name for name in os.listdir(path.parent) if name.startswith(path.name + CLAIM)}


def _may_live(claim: str) -> bool:
    host, machine, number, started, _ = claim.partition(CLAIM)[2].rsplit(".", 4)
    own = _this_process()
    return (host, machine) != (own.host, own.machine) or _started(int(number)) == started


def _this_process() -> _Process:
    host = "".join(letter if letter.isalnum() or letter == "-" else "-" for letter in socket.gethostname())[:40]
    known = [_read("/etc/machine-id")]
    with contextlib.suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))  # process numbers are only unique within a container
    machine = hashlib.blake2b(" ".join(known).encode(), digest_size=4).hexdigest()
    return _Process(host or "host", machine, os.getpid(), _started(os.getpid()) or "")


def _started(number: int) -> str | None:
    """When a process began ("-" if the system does not say); None if there is no such process or it has ended."""
    if _read("/proc/self/stat"):
        fields = _read(f"/proc/{number}/stat").rpartition(")")[2].split()  # from the third on: state, ...
        boot = _read("/proc/sys/kernel/random/boot_id")[:8]
        return None if not fields or fields[0] in "ZX" else f"{boot}-{fields[19]}"
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # another user's
    return "-"


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
