"""The images of shards as a source: read by their place in a shard, without an object per image."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np

from dualtemp.data.image_source import ImageSource
from dualtemp.data.loading.stacks import Levels
from dualtemp.data.shards.remote import is_remote, read_many, read_remote
from dualtemp.data.shards.shard_cache import IMAGES, find_copy
from dualtemp.data.shards.shard_index import CODECS, ShardFile, ShardIndex
from dualtemp.data.shards.shard_reading import ShardLost, read_local, unpacked_page


class ShardNames(Sequence[str]):
    """Names of images, decoded on access from two arrays, however many there are."""

    def __init__(self, index: ShardIndex, rows: np.ndarray, prefixes: tuple[str, ...]) -> None:
        """Name the images of these rows; prefixes: one per shard, for the names of its images."""
        self._index, self._rows, self._prefixes = index, rows, prefixes

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._rows)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> "ShardNames": ...
    def __getitem__(self, i: int | slice) -> "str | ShardNames":
        """Return the name of image i, or some of the names."""
        if isinstance(i, slice):
            return ShardNames(self._index, self._rows[i], self._prefixes)
        row = int(self._rows[i])
        return self._prefixes[self._index.shard_of(row)] + self._index.images.name(row)

    def __iter__(self) -> Iterator[str]:
        """Yield all names."""
        index, prefixes = self._index, self._prefixes
        for row in self._rows.tolist():
            yield prefixes[index.shard_of(row)] + index.images.name(row)

    def __eq__(self, other: object) -> bool:
        """Compare name by name with any list of names."""
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]


@dataclass(frozen=True, eq=False)
class ShardImages(ImageSource):
    """Images in shards.

    index: of all images of the shards; rows: int64 (N,), the rows of these images in it; prefixes: one per shard, put
    before the names of its images.
    """

    index: ShardIndex
    rows: np.ndarray
    prefixes: tuple[str, ...]
    place: str
    channels: int = 3
    enough: int | None = None
    levels: Levels | None = None

    @cached_property
    def names(self) -> ShardNames:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One per image."""
        return ShardNames(self.index, self.rows, self.prefixes)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.rows)

    def content(self, i: int) -> bytes:
        """Return the encoded bytes of image i; raises OSError."""
        index, row = self.index, int(self.rows[i])
        file = index.files[index.shard_of(row)]
        if (copy := find_copy(file)) is not None:
            with contextlib.suppress(ShardLost):  # the copy was removed: read the shard itself
                path, kind = copy
                held = replace(file, place=path, stamp="")
                if kind == IMAGES:
                    return read_local(held, int(index.starts_of_images[row]), int(index.images.length[row]))
                return self._unpacked(held, row)
            find_copy.cache_clear()
        return self._unpacked(file, row)

    def _unpacked(self, file: ShardFile, row: int) -> bytes:
        index = self.index
        start, codec = int(index.images.start[row]), int(index.images.codec[row])
        if not codec:
            return _stored(file, start, int(index.images.stored[row]))
        key, size = (file.place, file.stamp, start), int(index.images.stored[row])
        page = unpacked_page(key, lambda: _stored(file, start, size), CODECS[codec], int(index.images.unpacked[row]))
        return bytes(page[int(index.images.inner[row]) :][: int(index.images.length[row])])

    def shards(self) -> np.ndarray:
        """The number of each image's shard: int64 (N,)."""
        return np.searchsorted(np.array(self.index.ends, np.int64), self.rows, side="right")

    def read_ahead(self, index: Sequence[int]) -> None:
        """Fetch these images together if they are remote, and hold them for `content`."""
        wanted: dict[tuple[str, int], int] = {}
        for row in self.rows[np.asarray(index, int)].tolist():
            file = self.index.files[self.index.shard_of(row)]
            if is_remote(file.place) and find_copy(file) is None:
                wanted[file.place, int(self.index.images.start[row])] = int(self.index.images.stored[row])
        _ahead.clear()
        if wanted:
            _ahead.update(read_many([(place, start, length) for (place, start), length in wanted.items()]))

    def stamp(self, i: int) -> str:
        """The digest of image i, from the index."""
        return f"{self.index.images.digests[self.rows[i]].tobytes().hex()}\n"

    def digests(self) -> np.ndarray:
        """Digests of all images, from the index: uint8 (N, 16)."""
        return self.index.images.digests[self.rows]

    def is_gone(self) -> bool:
        """Whether all shards are gone; remote ones never count as gone."""
        return not any(is_remote(file.place) or os.path.exists(file.place) for file in self.index.files)

    def take(self, index: Sequence[int]) -> "ShardImages":
        """Return the images of these numbers, in that order."""
        where = np.arange(index.start, index.stop, index.step) if isinstance(index, range) else np.asarray(index, int)
        return replace(self, rows=self.rows[where])

    def join(self, others: Sequence["ShardImages"]) -> "ShardImages":
        """Return these images followed by others of the same shards."""
        return replace(self, rows=np.concatenate([self.rows, *(each.rows for each in others)]))


_ahead: dict[tuple[str, int], bytes] = {}  # what `read_ahead` of this process has fetched


def _stored(file: ShardFile, start: int, length: int) -> bytes:
    """Bytes of a shard, local or remote."""
    if not is_remote(file.place):
        return read_local(file, start, length)
    found = _ahead.get((file.place, start))
    if found is not None and len(found) == length:
        return found
    try:
        return read_remote(file.place, start, length)
    except OSError as error:
        raise ShardLost(f"its shard {file.name}: {error}") from error
