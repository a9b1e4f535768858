"""The index of a set of shards: every image's place, name, label and digest, in arrays; a small file in the cache.

About 70 bytes an image, in memory and on disk. The file is numpy's .npz with a JSON text in it: nothing is unpickled.
"""

import io
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dualtemp.data.shards.contents import NO_LABEL, ShardContents

VERSION = 1
CODECS = ("", "snappy", "gzip", "brotli", "zstd", "lz4_raw")  # numbers are written down: new ones go to the end
_ARRAYS = {
    "start": np.int64,
    "stored": np.int32,
    "unpacked": np.int32,
    "inner": np.int32,
    "length": np.int32,
    "codec": np.uint8,
}
_OTHERS = {"names": np.uint8, "name_ends": np.int64, "labels": np.int32, "digests": np.uint8}


@dataclass(frozen=True)
class ShardFile:
    """One shard. place: a path or an address; name: relative, for people; stamp: what it looked like when it was
    indexed (empty: it never was); classes: names by number that it tells; trouble: why images are missing.
    """

    place: str
    name: str
    stamp: str = ""
    classes: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """All images of some shards, one shard after another; ends: how many images there are up to each shard's end.

    words: the labels as they were written; the arrays as in `ShardContents`.
    """

    files: tuple[ShardFile, ...]
    ends: tuple[int, ...]
    words: tuple[str, ...]
    start: np.ndarray
    stored: np.ndarray
    unpacked: np.ndarray
    inner: np.ndarray
    length: np.ndarray
    codec: np.ndarray
    names: np.ndarray
    name_ends: np.ndarray
    labels: np.ndarray
    digests: np.ndarray

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.start)

    def shard_of(self, row: int) -> int:
        """The number of the shard that holds an image."""
        return bisect_right(self.ends, row)

    def name(self, row: int) -> str:
        """The name of an image within its shard."""
        first = int(self.name_ends[row - 1]) if row else 0
        return self.names[first : int(self.name_ends[row])].tobytes().decode(errors="surrogateescape")

    @cached_property
    def counts(self) -> np.ndarray:
        """Images of each shard: int64 (S,)."""
        return np.diff(np.array((0, *self.ends), np.int64))

    @cached_property
    def starts_of_images(self) -> np.ndarray:
        """Where each image begins if those of its shard lie one after another: int64 (N,)."""
        before = np.cumsum(self.length, dtype=np.int64) - self.length
        firsts = np.array((0, *self.ends[:-1]), np.int64)
        begins = np.append(before, 0)[firsts]
        return before - np.repeat(begins, self.counts)

    def of_shard(self, number: int) -> ShardContents:
        """The images of one shard."""
        first, end = (0, *self.ends)[number], self.ends[number]
        begin = int(self.name_ends[first - 1]) if first else 0
        last = int(self.name_ends[end - 1]) if end else 0
        arrays = {name: getattr(self, name)[first:end] for name in (*_ARRAYS, "labels", "digests")}
        names, name_ends = self.names[begin:last], self.name_ends[first:end] - begin
        file = self.files[number]
        return ShardContents(
            **arrays, names=names, name_ends=name_ends, words=self.words, classes=file.classes, trouble=file.trouble
        )

    def to_bytes(self) -> bytes:
        """The content of the index file."""
        about = {"version": VERSION, "files": [asdict(file) for file in self.files], "ends": self.ends}
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(about | {"words": self.words}).encode(), np.uint8)
        np.savez(buffer, about=text, **{name: getattr(self, name) for name in (*_ARRAYS, *_OTHERS)})
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "ShardIndex":
        """Read an index file; raises ValueError for anything else."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            about = json.loads(arrays.pop("about").tobytes())
            if about["version"] != VERSION or arrays.keys() != _ARRAYS.keys() | _OTHERS.keys():
                raise ValueError("written by another version")
            files = tuple(ShardFile(**(file | {"classes": tuple(file["classes"])})) for file in about["files"])
            made = cls(files, tuple(about["ends"]), tuple(about["words"]), **arrays)
            made.check()
            return made
        except Exception as error:  # of a damaged file nearly anything
            raise ValueError(f"not an index: {error}") from error

    def check(self) -> None:
        """Refuse parts that do not fit together: ValueError."""
        count = self.ends[-1] if self.ends else 0
        rising = (0, *self.ends)
        lengths = {name: len(getattr(self, name)) for name in (*_ARRAYS, "name_ends", "labels", "digests")}
        kinds = {name: getattr(self, name).dtype for name in (*_ARRAYS, *_OTHERS)}
        if (
            len(self.files) != len(self.ends)
            or any(one > other for one, other in pairwise(rising))
            or set(lengths.values()) != {count}
            or kinds != {name: np.dtype(kind) for name, kind in (_ARRAYS | _OTHERS).items()}
            or (count and (int(self.name_ends[-1]) != len(self.names) or bool((np.diff(self.name_ends) < 0).any())))
            or (count and int(self.labels.max()) >= len(self.words))
            or (count and (int(self.codec.max()) >= len(CODECS) or int(self.length.min()) < 0))
        ):
            raise ValueError("its parts do not fit together")


def joined(files: Sequence[ShardFile], contents: Sequence[ShardContents]) -> ShardIndex:
    """Put the contents of shards together, in order."""
    words = tuple(sorted({word for each in contents for word in each.words}))
    number = {word: i for i, word in enumerate(words)}
    arrays: dict[str, Any] = {
        name: np.concatenate([np.zeros(0, kind), *(getattr(each, name) for each in contents)]).astype(kind)
        for name, kind in (_ARRAYS | {"names": np.uint8}).items()
    }
    begins = np.cumsum([0, *(len(each.names) for each in contents)])
    ends = [each.name_ends + begin for each, begin in zip(contents, begins, strict=False)]
    labels = [np.array([*(number[word] for word in each.words), NO_LABEL], np.int32)[each.labels] for each in contents]
    arrays["name_ends"] = np.concatenate([np.zeros(0, np.int64), *ends]).astype(np.int64)
    arrays["labels"] = np.concatenate([np.zeros(0, np.int32), *labels]).astype(np.int32)
    arrays["digests"] = np.concatenate([np.zeros((0, 16), np.uint8), *(each.digests for each in contents)])
    totals = tuple(np.cumsum([len(each) for each in contents]).tolist())
    return ShardIndex(tuple(files), totals, words, **{name: arrays[name] for name in _array_names()})


def _array_names() -> tuple[str, ...]:
    return tuple(each.name for each in fields(ShardIndex))[3:]
