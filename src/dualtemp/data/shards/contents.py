"""What one shard holds, as arrays: where each image lies, its name, label and digest."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

DIGEST = 16  # bytes
NO_LABEL = -1
Row = tuple[int, int, int, int, int, int]  # start, stored, unpacked, inner, length, number of the codec


@dataclass(frozen=True)
class ShardContents:
    """The images of one shard.

    start, stored: (N,), the bytes to read; unpacked: (N,), their number once they are unpacked; inner, length: (N,),
    where the image lies in those (0 and `stored` where they are the image); codec: (N,), how they are packed, 0 as they
    are; names: utf-8 bytes one after another; name_ends: int64 (N,); labels: int32 (N,), numbers of `words`, -1 none;
    digests: uint8 (N, 16), blake2b of each image; classes: names by number, if the shard tells them; trouble: why the
    rest is missing.
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
    words: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    trouble: str = ""

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.start)


@dataclass
class Gatherer:
    """Collects the images of a shard one by one."""

    rows: list[Row] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)

    def add(self, name: str, content: bytes | memoryview, start: int) -> None:
        """Take an image that lies in the shard as it is."""
        self.add_packed(name, content, (start, len(content), len(content), 0, len(content), 0))

    def add_packed(self, name: str, content: bytes | memoryview, row: Row) -> None:
        """Take an image with its place."""
        self.rows.append(row)
        self.names.append(name)
        self.labels.append(None)
        self.digests.append(blake2b(content, digest_size=DIGEST).digest())

    def contents(self, classes: Sequence[str] = (), trouble: str = "") -> ShardContents:
        """Everything as arrays; of two images of one name the later one, as tar has it."""
        last = {name: i for i, name in enumerate(self.names)}
        kept = range(len(self.names)) if len(last) == len(self.names) else sorted(last.values())
        table = np.array([self.rows[i] for i in kept], np.int64).reshape(-1, 6)
        encoded = [self.names[i].encode(errors="surrogateescape") for i in kept]
        labels = [self.labels[i] for i in kept]
        words = tuple(sorted({label for label in labels if label is not None}))
        number = {word: i for i, word in enumerate(words)} | {None: NO_LABEL}
        return ShardContents(
            *(np.ascontiguousarray(table[:, column]) for column in range(5)),
            codec=table[:, 5].astype(np.uint8),
            names=np.frombuffer(b"".join(encoded), np.uint8),
            name_ends=np.cumsum([len(name) for name in encoded], dtype=np.int64),
            labels=np.array([number[label] for label in labels], np.int32),
            digests=np.frombuffer(b"".join(self.digests[i] for i in kept), np.uint8).reshape(-1, DIGEST),
            words=words,
            classes=tuple(classes),
            trouble=trouble,
        )
