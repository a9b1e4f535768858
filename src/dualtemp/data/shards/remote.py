"""Read remote shards through fsspec: http, https, s3 and what else it knows. Nothing waits forever.

A read is tried TRIES times with pauses in between; it may take STALL seconds, and longer for large reads. If all tries
fail, the shard, or its whole host, is not asked again for REST seconds: its images then count as unreadable at once.
"""

import contextlib
import io
import os
import threading
import time
from collections.abc import Sequence
from functools import cache
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from dualtemp.data.shards.shard_reading import ShardLost
from dualtemp.errors import UserError

TRIES = 3
PAUSES = (1.0, 3.0)  # seconds between tries
CONNECT, STALL = 10.0, 20.0  # seconds
SLOWEST = 100_000  # bytes a second: a slower read has failed
REST = 30.0  # seconds before a shard or host that failed is asked again
CHUNK = 8 << 20
AT_ONCE = 16  # requests of one process
GONE = (404, 410)  # status codes of a missing file

_answered: dict[str, float] = {}  # host -> time of its last answer
_resting: dict[str, float] = {}  # place or host -> time until which it is not asked
_lock = threading.Lock()


def is_remote(place: str) -> bool:
    """Whether a place is an address."""
    return "://" in place


@cache
def _opened(protocol: str, process: int) -> Any:
    try:
        import fsspec

        options: dict[str, Any] = {}
        if protocol in ("http", "https"):
            import aiohttp

            waits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=STALL)
            options = {"client_kwargs": {"timeout": waits}}
        elif protocol in ("s3", "s3a"):
            waits = {"connect_timeout": CONNECT, "read_timeout": STALL, "retries": {"max_attempts": 1}}
            options = {"config_kwargs": waits}
        return fsspec.filesystem(protocol, **options)
    except ImportError as error:
        raise UserError(f"{protocol}:// needs more: pip install 'dualtemp[shards]' ({error})") from None
    except ValueError as error:
        raise UserError(f"{protocol}://: {error}") from None


def _files(place: str) -> Any:
    return _opened(place.partition("://")[0].lower(), os.getpid())


def _call(files: Any, name: str, seconds: float, *arguments: Any, **named: Any) -> Any:
    if getattr(files, "async_impl", False):
        from fsspec.asyn import sync

        return sync(files.loop, getattr(files, f"_{name}"), *arguments, timeout=seconds, **named)
    return getattr(files, name)(*arguments, **named)


def remote_stamp(place: str) -> str:
    """The length of a shard and whatever else shows a change, such as an ETag; raises OSError."""
    told = _with_patience(place, lambda files: _call(files, "info", STALL, place))
    marks = [str(told[name]) for name in ("ETag", "etag", "Last-Modified", "LastModified", "mtime") if told.get(name)]
    if told.get("size") is None:
        raise ShardLost("its length is not told")
    return " ".join([str(told["size"]), *marks])


def read_remote(place: str, start: int, length: int) -> bytes:
    """Return bytes of a remote shard; raises OSError after a few tries."""
    seconds = STALL + length / SLOWEST

    def ask(files: Any) -> bytes:
        return _checked(place, _call(files, "cat_file", seconds, place, start=start, end=start + length), length)

    return _with_patience(place, ask)


def read_many(wanted: Sequence[tuple[str, int, int]]) -> dict[tuple[str, int], bytes]:
    """Read many (place, start, length) at once; those that fail at the first try are left out."""
    found: dict[tuple[str, int], bytes] = {}
    by_protocol: dict[str, list[tuple[str, int, int]]] = {}
    for each in wanted:
        if not _rests(each[0]):
            by_protocol.setdefault(each[0].partition("://")[0], []).append(each)
    for some in by_protocol.values():
        files = _files(some[0][0])
        if not getattr(files, "async_impl", False):
            continue
        places, starts, ends = zip(*((place, start, start + length) for place, start, length in some), strict=True)
        seconds = STALL + sum(length for *_, length in some) / SLOWEST
        with contextlib.suppress(Exception):  # each is read again later, alone and with retries
            asked = (list(places), list(starts), list(ends))
            given = _call(files, "cat_ranges", seconds, *asked, batch_size=AT_ONCE, on_error="return")
            for (place, start, length), content in zip(some, given, strict=True):
                if isinstance(content, bytes) and len(content) == length:
                    found[place, start] = content
                    _answered[_host(place)] = time.monotonic()
    return found


def download(place: str, size: int, file: BinaryIO) -> None:
    """Write a whole remote shard into a file, piece by piece; raises OSError."""
    for start in range(0, size, CHUNK):
        file.write(read_remote(place, start, min(CHUNK, size - start)))


class NoParts(ShardLost):
    """The server does not support range requests."""


class RemoteFile(io.RawIOBase):
    """A remote shard as a file that is read in pieces."""

    def __init__(self, place: str, size: int) -> None:
        self.place, self.size, self.at = place, size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        """Return the position."""
        return self.at

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, as far as the shard goes."""
        length = max(0, min(len(buffer), self.size - self.at))
        if length:
            buffer[:length] = read_remote(self.place, self.at, length)
            self.at += length
        return length


def open_remote(place: str, stamp: str) -> BinaryIO:
    """Open a remote shard for reading, in pieces of CHUNK bytes."""
    return io.BufferedReader(RemoteFile(place, size_of(stamp)), CHUNK)  # pyright: ignore[reportReturnType]


def list_remote(folder: str, endings: tuple[str, ...]) -> list[str]:
    """The addresses with these endings in a folder and below it, or that match a pattern; sorted."""
    files, magic = _files(folder), any(letter in folder for letter in "*?[")
    try:
        how, where = ("glob", folder) if magic else ("find", folder.rstrip("/") + "/")
        found = _call(files, how, 3 * STALL, where)
    except Exception as error:
        raise UserError(f"{folder}: cannot be listed ({_reason(error)}); name the shards by braces") from error
    protocol = folder.partition("://")[0]
    whole = [each if "://" in each else f"{protocol}://{each}" for each in found]
    return sorted(each for each in whole if each.lower().endswith(endings))


def read_text(place: str) -> str | None:
    """The content of a small file; None if it does not exist. Raises OSError if it cannot be read."""
    try:
        return _with_patience(place, lambda files: _call(files, "cat_file", STALL, place)).decode(errors="replace")
    except FileNotFoundError:
        return None


def _with_patience(place: str, ask: Any) -> Any:
    """Try a few times; raises FileNotFoundError at once, ShardLost after the last try."""
    if _rests(place):
        raise ShardLost(f"{_host(place)} did not answer; it is asked again later")
    began, reason = time.monotonic(), ""
    for pause in (*PAUSES[: TRIES - 1], None):
        try:
            found = ask(_files(place))
        except UserError:
            raise
        except Exception as raised:  # libraries raise nearly anything
            error = _cause(place, raised)
            if isinstance(error, FileNotFoundError):
                _answered[_host(place)] = time.monotonic()
                raise FileNotFoundError(f"{place} is gone") from None
            reason = _reason(error)
            if _is_final(error):
                raise ShardLost(reason) from error
        else:
            _answered[_host(place)] = time.monotonic()
            return found
        if pause is not None:
            time.sleep(pause)
    with _lock:
        _resting[place] = time.monotonic() + REST
        if _answered.get(_host(place), -1.0) < began:
            _resting[_host(place)] = time.monotonic() + REST
    raise ShardLost(f"{reason}, {TRIES} times")


def _rests(place: str) -> bool:
    now = time.monotonic()
    return max(_resting.get(place, 0.0), _resting.get(_host(place), 0.0)) > now


def _host(place: str) -> str:
    parts = urlsplit(place)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}://"


def _cause(place: str, error: BaseException) -> BaseException:
    """The true reason: if a file's length cannot be read over http, fsspec always says "not found"."""
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and cause is not None and place.lower().startswith("http"):
        return error if getattr(cause, "status", None) in GONE else cause
    return error


def _is_final(error: BaseException) -> bool:
    """Whether trying again is useless: the server has understood the request, and refuses it."""
    status = getattr(error, "status", None)
    refused = isinstance(status, int) and 400 <= status < 500 and status not in (408, 429)
    return refused or isinstance(error, PermissionError | NoParts)


def _checked(place: str, found: bytes, length: int) -> bytes:
    if len(found) == length:
        return found
    if len(found) > length:
        raise NoParts(f"{_host(place)} gives whole files only, no parts of them")
    raise ShardLost("the shard has been cut short")


def _reason(error: BaseException) -> str:
    if type(error).__name__ in ("FSTimeoutError", "TimeoutError", "ServerTimeoutError", "ReadTimeoutError"):
        return "no answer in time"
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:150]


def size_of(stamp: str) -> int:
    """The length recorded in a stamp."""
    return int(stamp.partition(" ")[0])
