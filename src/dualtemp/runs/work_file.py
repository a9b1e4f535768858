"""Intermediate results of a long computation: if it is killed, all complete records are still there.

A line of JSON says what is computed; records follow. A record that was cut short is recognized by its length or
checksum, and removed.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

_HEAD = struct.Struct("<4sQQQI")  # mark, rows, features of a row, bytes of problems, checksum of what follows
_MARK = b"rows"


class Record(NamedTuple):
    """Features of a batch: index int64 (n,), features float32 (n, F), and what could not be read, name -> reason."""

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
        self._start = len(head)

    def records(self) -> Iterator[Record]:
        """Yield all complete records; afterwards the file ends with the last of them."""
        self._file.seek(self._start)
        while (record := _read(self._file)) is not None:
            end = self._file.tell()
            yield record
            self._file.seek(end)
        # _read has gone back to where the whole records end.
        self._file.truncate()

    def append(self, record: Record) -> None:
        """Add a record at the end; once this returns, killing the process does not lose it."""
        problems = json.dumps(record.problems).encode()
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
            return Record(index, features, json.loads(payload[expected - length :]))
    file.seek(start)
    return None
