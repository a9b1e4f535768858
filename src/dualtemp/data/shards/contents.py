"""The contents of one shard, gathered while it is read from beginning to end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from dualtemp.data.shards.image_arrays import DIGEST, KINDS, NO_LABEL, ImageArrays

PLACES = ("start", "stored", "unpacked", "inner", "length", "codec")
Row = tuple[int, int, int, int, int, int]  # of PLACES


@dataclass(frozen=True)
class ShardContents:
    """One shard.

    words: the labels as they are written, which `images.labels` numbers; classes: names by number, if the shard has
    them; trouble: why the rest is missing.
    """

    images: ImageArrays
    words: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    trouble: str = ""

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)


@dataclass
class Gatherer:
    """Collects the images of a shard one by one."""

    rows: list[Row] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def add(self, name: str, content: bytes | memoryview, start: int) -> None:
        """Add an image that is stored in the shard as it is."""
        self.add_packed(name, content, (start, len(content), len(content), 0, len(content), 0))

    def add_packed(self, name: str, content: bytes | memoryview, row: Row) -> None:
        """Add an image, whose place is given as a Row."""
        self.rows.append(row)
        self.names.append(name)
        self.labels.append(None)
        self.digests.append(blake2b(content, digest_size=DIGEST).digest())

    def contents(self, classes: Sequence[str] = (), trouble: str = "") -> ShardContents:
        """Return everything as arrays; of images with the same name only the last counts, as in tar."""
        last = {name: i for i, name in enumerate(self.names)}
        kept = range(len(self.names)) if len(last) == len(self.names) else sorted(last.values())
        table = np.array([self.rows[i] for i in kept], np.int64).reshape(-1, 6)
        encoded = [self.names[i].encode(errors="surrogateescape") for i in kept]
        labels = [self.labels[i] for i in kept]
        words = tuple(sorted({label for label in labels if label is not None}))
        number = {word: i for i, word in enumerate(words)} | {None: NO_LABEL}
        images = ImageArrays(
            *(table[:, column].astype(KINDS[name]) for column, name in enumerate(PLACES)),
            names=np.frombuffer(b"".join(encoded), np.uint8),
            name_ends=np.cumsum([len(name) for name in encoded], dtype=np.int64),
            labels=np.array([number[label] for label in labels], np.int32),
            digests=np.frombuffer(b"".join(self.digests[i] for i in kept), np.uint8).reshape(-1, DIGEST),
        )
        return ShardContents(images, words, tuple(classes), trouble)
