"""Features of a list of images, record by record: those that an earlier process has left first, then the others."""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from dualtemp import __version__
from dualtemp.encoder.embedding_file import valid_text
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.encoder.image_list import ImageList, listed
from dualtemp.encoder.work_file import Record
from dualtemp.errors import UserError

Told = Callable[[int, int], None]  # is told how many images are done, and of how many


class Records(Protocol):
    """Where records are kept: a WorkFile, or a cache."""

    def records(self) -> Iterator[Record]:
        """All that are there."""
        ...

    def append(self, record: Record) -> None:
        """Keep one more."""
        ...


def images_of(encoder: RunEncoder, data: Path | str | None, part: str = "all") -> ImageList:
    """The images of a source, by default of the run's own."""
    own = data is None
    if own and encoder.is_start:
        raise UserError(f"{encoder.path} has no images of its own: give some, --data FOLDER|SET|FILE.npz")
    return listed(encoder.chosen.data if own else data, part, labels=encoder.chosen.labels or not own)


def feature_records(
    kept: Records | None,
    encoder: RunEncoder,
    images: ImageList,
    batch: int,
    workers: int | None,
    told: Told | None = None,
    note: Callable[[str], None] | None = None,
    mirrored: bool = False,
) -> Iterator[Record]:
    """Yield the records that are kept, then compute the others and keep them, a record a batch.

    Batches begin where they would have begun anyway, so that features have the same bits. told hears how many images
    are done; note, once, how many were done before.
    """
    start = 0

    def done() -> str:
        return f"{min(start, len(images)):,} of {len(images):,} images are done"

    for record in kept.records() if kept is not None else ():
        yield record
        start = _end_of_batch(record, batch, start)
    if start and note is not None:
        note(done())
    if start >= len(images):
        return
    try:
        for record in _computed(encoder, images, start, batch, workers, mirrored):
            if kept is not None:
                kept.append(record)
            yield record
            start = _end_of_batch(record, batch, start)
            if told is not None:
                told(min(start, len(images)), len(images))
    except KeyboardInterrupt:
        if kept is None:
            raise
        raise KeyboardInterrupt(f"stopped; {done()}; the same command goes on") from None


def features_facts(encoder: RunEncoder, images: ImageList) -> dict[str, Any]:
    """All that decides the features of a list of images, as JSON can hold it."""
    views, chosen = encoder.views, encoder.chosen
    return {
        "dualtemp": __version__,
        "torch": torch.__version__,
        "device": encoder.device.type,
        "backbone": encoder.fingerprint,
        "network": [chosen.backbone, chosen.channels_last],
        "view": [views.size, encoder.channels, list(views.mean), list(views.std)],
        "source": valid_text(images.source),
        "list": list_fingerprint(images),
    }


def list_fingerprint(images: ImageList) -> str:
    """Of the pixels of a set in memory; of others the names and stamps, which no change of content leaves."""
    digest, source = blake2b(digest_size=16), images.images.source
    if images.images.in_memory:
        digest.update(source.fingerprint(None, ()).encode())
    for i, name in enumerate(images.names):
        digest.update(f"{name}\0{source.stamp(i)}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _computed(
    encoder: RunEncoder, images: ImageList, start: int, batch: int, workers: int | None, mirrored: bool
) -> Iterator[Record]:
    """From image `start` on, a record a batch; files that cannot be read are told in the next one."""
    problems: dict[str, str] = {}
    for index, features in encoder.features(images.images.since(start), batch, workers, problems, mirrored):
        yield Record(index.numpy() + start, features.numpy(), dict(problems))
        problems.clear()
    if problems:
        yield Record(np.zeros(0, np.int64), np.zeros((0, encoder.width), np.float32), dict(problems))


def _end_of_batch(record: Record, batch: int, start: int) -> int:
    """Where the batch of the last image ends: going on there makes the batches that would have been made anyway."""
    return -(-(int(record.index[-1]) + 1) // batch) * batch if len(record.index) else start
