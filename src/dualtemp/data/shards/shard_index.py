"""The index of a set of shards: every image's place, name, label and digest, in arrays; a small file in the cache.

It takes about 70 bytes per image, in memory and on disk. The file is an .npz with a JSON text in it: nothing is
unpickled.
"""

import io
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dualtemp.data.shards.contents import ShardContents
from dualtemp.data.shards.image_arrays import KINDS, NO_LABEL, ImageArrays, join_arrays

VERSION = 1
CODECS = ("", "snappy", "gzip", "brotli", "zstd", "lz4_raw")  # their numbers are stored: add new ones at the end


@dataclass(frozen=True)
class ShardFile:
    """One shard.

    place: a path or an address; name: relative, for display; stamp: identifies its state when it was indexed (empty: it
    never was); classes: names by number, if the shard has them; trouble: why images are missing.
    """

    place: str
    name: str
    stamp: str = ""
    classes: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """All images of some shards, in order; ends: the number of images up to the end of each shard.

    words: the labels as the shards write them; images: the facts about each.
    """

    files: tuple[ShardFile, ...]
    ends: tuple[int, ...]
    words: tuple[str, ...]
    images: ImageArrays

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    def shard_of(self, row: int) -> int:
        """The number of the shard that holds an image."""
        return bisect_right(self.ends, row)

    @cached_property
    def counts(self) -> np.ndarray:
        """Images of each shard: int64 (S,)."""
        return np.diff(np.array((0, *self.ends), np.int64))

    @cached_property
    def starts_of_images(self) -> np.ndarray:
        """Where each image begins in a file that holds the images of its shard one after another: int64 (N,)."""
        length = self.images.length
        before = np.cumsum(length, dtype=np.int64) - length
        firsts = np.array((0, *self.ends[:-1]), np.int64)
        begins = np.append(before, 0)[firsts]
        return before - np.repeat(begins, self.counts)

    def of_shard(self, number: int) -> ShardContents:
        """The images of one shard."""
        images, file = self.images.between((0, *self.ends)[number], self.ends[number]), self.files[number]
        return ShardContents(images, self.words, file.classes, file.trouble)

    def to_bytes(self) -> bytes:
        """The content of the index file."""
        about = {"version": VERSION, "files": [asdict(file) for file in self.files], "ends": self.ends}
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(about | {"words": self.words}).encode(), np.uint8)
        np.savez(buffer, about=text, **self.images.by_name())
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "ShardIndex":
        """Read an index file; raises ValueError for anything else."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            about = json.loads(arrays.pop("about").tobytes())
            if about["version"] != VERSION or arrays.keys() != KINDS.keys():
                raise ValueError("written by another version")
            files = tuple(ShardFile(**(file | {"classes": tuple(file["classes"])})) for file in about["files"])
            made = cls(files, tuple(about["ends"]), tuple(about["words"]), ImageArrays(**arrays))
            made.check()
            return made
        except Exception as error:  # a damaged file may raise nearly anything
            raise ValueError(f"not an index: {error}") from error

    def check(self) -> None:
        """Raise ValueError if the parts do not fit together."""
        if (
            len(self.files) != len(self.ends)
            or any(one > other for one, other in pairwise((0, *self.ends)))
            or len(self.images) != (self.ends[-1] if self.ends else 0)
            or not self.images.fit_together(len(self.words), len(CODECS))
        ):
            raise ValueError("its parts do not fit together")


def joined(files: Sequence[ShardFile], contents: Sequence[ShardContents]) -> ShardIndex:
    """Combine the contents of shards into an index, in order."""
    words = tuple(sorted({word for each in contents for word in each.words}))
    number = {word: i for i, word in enumerate(words)}
    labels = [
        np.array([*(number[word] for word in each.words), NO_LABEL], np.int32)[each.images.labels] for each in contents
    ]
    totals = tuple(np.cumsum([len(each) for each in contents]).tolist())
    return ShardIndex(tuple(files), totals, words, join_arrays([each.images for each in contents], labels))
