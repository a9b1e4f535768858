"""Read bytes from anywhere in a shard, in many threads and processes at once.

Files are not memory-mapped: if a mapped file is truncated, reading it kills the process.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable

from dualtemp.data.shards.shard_index import ShardFile

_OPEN_AT_MOST = 64  # shards a process keeps open
_PAGES_AT_MOST = 8  # pages that a process keeps, usually of 1 MB


class ShardLost(OSError):
    """A shard cannot be read, or has changed since it was indexed."""


class _Handle:
    """An open file that is closed when it is no longer referenced."""

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


_lock = threading.Lock()
_open: OrderedDict[tuple[str, str], _Handle] = OrderedDict()
_pages: OrderedDict[tuple[str, str, int], memoryview] = OrderedDict()


def _renew_lock() -> None:
    """Replace the lock after a fork: if another thread held it, the child could never acquire it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def local_stamp(path: str) -> str:
    """Length and times of a file; raises OSError."""
    return _stamp(os.stat(path))


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def read_local(file: ShardFile, start: int, length: int) -> bytes:
    """Return bytes of a shard in a local file; raises ShardLost if it is not the file that was indexed."""
    handle = _handle(file, file.place)
    found = _read_at(handle.number, length, start)
    if len(found) < length:
        raise ShardLost(f"its shard {file.name} has been cut short")
    return found


def _handle(file: ShardFile, path: str) -> _Handle:
    key = (path, file.stamp)
    with _lock:
        if (handle := _open.get(key)) is not None:
            _open.move_to_end(key)
            return handle
    try:
        handle = _Handle(path)
    except FileNotFoundError:
        raise ShardLost(f"its shard {file.name} is gone") from None
    except OSError as error:
        raise ShardLost(f"its shard {file.name} cannot be read ({error.strerror})") from error
    if file.stamp and _stamp(os.fstat(handle.number)) != file.stamp:
        raise ShardLost(f"its shard {file.name} has been changed since it was indexed")
    with _lock:
        _open[key] = handle
        while len(_open) > _OPEN_AT_MOST:
            _open.popitem(last=False)
    return handle


def unpacked_page(key: tuple[str, str, int], read: Callable[[], bytes], codec: str, length: int) -> memoryview:
    """A decompressed page of a Parquet file; the last few are kept, for reading image after image."""
    with _lock:
        if (page := _pages.get(key)) is not None:
            _pages.move_to_end(key)
            return page
    import pyarrow as pa

    packed = read()
    try:
        page = memoryview(pa.Codec(codec).decompress(packed, length, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise ShardLost(f"its page of the shard is damaged ({' '.join(str(error).split())[:100]})") from error
    with _lock:
        _pages[key] = page
        while len(_pages) > _PAGES_AT_MOST:
            _pages.popitem(last=False)
    return page


def _read_at(number: int, length: int, start: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(number, length, start)
    with _lock:  # Windows: all readers share one file position
        os.lseek(number, start, os.SEEK_SET)
        return os.read(number, length)
