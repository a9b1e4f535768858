"""Intermediate results of a long computation: if it is killed, all complete records survive.

A line of JSON says what is computed; records follow. A truncated record is recognized by its length or checksum, and
removed.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from dualtemp.data.loading.decode import NotRead

_HEAD = struct.Struct("<4sQQQI")  # mark, rows, features per row, bytes of problems, checksum of the rest
_MARK = b"rows"
_NOT_READ = "not read"  # in the JSON of problems, {_NOT_READ: reason} is a NotRead


class Record(NamedTuple):
    """Features of a batch: index int64 (n,), features float32 (n, F); problems: unreadable files, name -> reason."""

    index: np.ndarray
    features: np.ndarray
    problems: dict[str, str]


class WorkFile:
    """Records at `path`: those of an earlier process if it computed the same, else none.

    about: what is computed, for JSON; anew: whether records of another computation were discarded.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about
        head = json.dumps(about, sort_keys=True).encode() + b"\n"
        self._file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115  closed by close
        there = self._file.readline(len(head) + 1)
        self.anew = there not in (b"", head) and not head.startswith(there)
        if there != head:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(head)
        self._start = self._last = len(head)

    def records(self) -> Iterator[Record]:
        """Yield all complete records; afterwards the file ends with the last of them."""
        start = self._start
        self._file.seek(start)
        while (record := _read(self._file)) is not None:
            self._last, end = start, self._file.tell()
            yield record
            self._file.seek(end)
            start = end
        # `_read` has moved back to the end of the complete records.
        self._file.truncate()

    def cut(self) -> None:
        """Remove the record that `records` yielded last, and all after it; do not continue that iteration."""
        self._file.seek(self._last)
        self._file.truncate()

    def append(self, record: Record) -> None:
        """Add a record at the end; once this returns, the record survives if the process is killed."""
        marked = {name: {_NOT_READ: why} if isinstance(why, NotRead) else why for name, why in record.problems.items()}
        problems = json.dumps(marked).encode()
        payload = record.index.astype("<i8").tobytes() + record.features.astype("<f4").tobytes() + problems
        head = _HEAD.pack(_MARK, *record.features.shape, len(problems), zlib.crc32(payload))
        self._file.seek(0, os.SEEK_END)
        self._file.write(head + payload)
        self._file.flush()

    def close(self) -> None:
        """Close the file without removing it."""
        self._file.close()


def _read(file: BinaryIO) -> Record | None:
    """Read the record at the file's position; None, without moving it, if there is no complete one."""
    start, size = file.tell(), os.fstat(file.fileno()).st_size
    head = file.read(_HEAD.size)
    if len(head) == _HEAD.size:
        mark, rows, width, length, checksum = _HEAD.unpack(head)
        expected = rows * 8 + rows * width * 4 + length
        payload = file.read(expected) if mark == _MARK and expected <= size - start else b""
        if mark == _MARK and len(payload) == expected and zlib.crc32(payload) == checksum:
            index = np.frombuffer(payload, "<i8", rows)
            features = np.frombuffer(payload, "<f4", rows * width, rows * 8).reshape(rows, width)
            marked: dict[str, Any] = json.loads(payload[expected - length :])
            problems: dict[str, str] = {
                name: NotRead(why[_NOT_READ]) if isinstance(why, dict) else why for name, why in marked.items()
            }
            return Record(index, features, problems)
    file.seek(start)
    return None
