"""Facts about the images of shards, as arrays: the place, name, label and digest of each."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

DIGEST = 16  # bytes
NO_LABEL = -1
KINDS: dict[str, Any] = {
    "start": np.int64,
    "stored": np.int32,
    "unpacked": np.int32,
    "inner": np.int32,
    "length": np.int32,
    "codec": np.uint8,
    "names": np.uint8,
    "name_ends": np.int64,
    "labels": np.int32,
    "digests": np.uint8,
}


@dataclass(frozen=True, eq=False)
class ImageArrays:
    """N images, of one shard or of several in order.

    start, stored: (N,), first byte and number of bytes to read; unpacked: (N,), their number after decompression;
    inner, length: (N,), where the image lies in those (0 and `stored` if they are the image); codec: (N,), their
    compression, 0 for none; names: UTF-8 bytes of all names, concatenated; name_ends: (N,), the end of each name;
    labels: (N,), numbers of words, -1 for none; digests: (N, 16), blake2b of each image. All have the types in KINDS.
    """

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

    def by_name(self) -> dict[str, Any]:
        """All arrays, by the names of KINDS."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def name(self, row: int) -> str:
        """The name of an image within its shard."""
        first = int(self.name_ends[row - 1]) if row else 0
        return self.names[first : int(self.name_ends[row])].tobytes().decode(errors="surrogateescape")

    def between(self, first: int, end: int) -> "ImageArrays":
        """The images from `first` up to, but not including, `end`."""
        begin = int(self.name_ends[first - 1]) if first else 0
        last = int(self.name_ends[end - 1]) if end else 0
        cut = {name: array[first:end] for name, array in self.by_name().items() if name != "names"}
        return ImageArrays(**{**cut, "names": self.names[begin:last], "name_ends": cut["name_ends"] - begin})

    def fit_together(self, words: int, codecs: int) -> bool:
        """Whether lengths, types and numbers are consistent, in an index with so many words and codecs."""
        arrays, count = self.by_name(), len(self.start)
        if {name: array.dtype for name, array in arrays.items()} != {
            name: np.dtype(kind) for name, kind in KINDS.items()
        }:
            return False
        if any(len(array) != count for name, array in arrays.items() if name != "names"):
            return False
        return not count or bool(
            int(self.name_ends[-1]) == len(self.names)
            and (np.diff(self.name_ends) >= 0).all()
            and int(self.labels.max()) < words
            and int(self.codec.max()) < codecs
            and int(self.length.min()) >= 0
        )


def join_arrays(parts: Sequence[ImageArrays], labels: Sequence[np.ndarray]) -> ImageArrays:
    """Concatenate the images of shards; labels: those of each shard, in a numbering that all shards share."""
    begins = np.cumsum([0, *(len(each.names) for each in parts)])
    moved = {
        "name_ends": [each.name_ends + begin for each, begin in zip(parts, begins, strict=False)],
        "labels": labels,
    }
    empty = {"digests": np.zeros((0, DIGEST), np.uint8)}
    return ImageArrays(
        **{
            name: np.concatenate(
                [empty.get(name, np.zeros(0, kind)), *moved.get(name, [getattr(each, name) for each in parts])]
            ).astype(kind)
            for name, kind in KINDS.items()
        }
    )
