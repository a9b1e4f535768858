"""Features of a list of images, record by record: first those that an earlier process computed, then the rest."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from dualtemp import __version__
from dualtemp.data.loading.decode import NotRead, UnreadableImage
from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.data.sources.label_file import AUTO
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.encoder.image_list import ImageList, listed
from dualtemp.errors import UserError
from dualtemp.file_names import valid_text
from dualtemp.machine import check_workers
from dualtemp.runs.work_file import Record

_USUAL_RESIZE = ("bicubic", None)  # left out of the facts, so that features cached earlier stay valid

Progress = Callable[[int, int], None]  # called with the number of images done, and of all


@dataclass(frozen=True)
class EncodingOptions:
    """How features are computed.

    batch: images at once; workers: processes that read image files, default one for each core but one; mirrored:
    average the features of an image and its mirror image; cache: keep features for the next time, and reuse kept ones;
    progress: called with the number of images done, and of all; note: called with messages for the user.
    """

    batch: int = EVALUATION_BATCH
    workers: int | None = None
    mirrored: bool = False
    cache: bool = True
    progress: Progress | None = None
    note: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        """Check what a caller from Python may have got wrong."""
        check_workers(self.workers)

    def tell(self, text: str) -> None:
        """Pass a message to `note`, if it is set."""
        if self.note is not None:
            self.note(text)


class Records(Protocol):
    """Where records are kept: a WorkFile, or a cache."""

    def records(self) -> Iterator[Record]:
        """Yield the records that are kept."""
        ...

    def cut(self) -> None:
        """Remove the record yielded last, and all after it."""
        ...

    def append(self, record: Record) -> None:
        """Keep one more."""
        ...


def images_of(
    encoder: RunEncoder, data: Path | str | None, part: str = "all", labels_from: Path | str | None = AUTO
) -> ImageList:
    """List the images of a source (default: the run's own); labels_from: as in `listed`."""
    own = data is None
    if own and encoder.is_start:
        raise UserError(f"{encoder.path} has no images of its own: give some, --data FOLDER|SET|FILE.npz")
    if not own:
        return listed(data, part, labels_from=labels_from).by_levels(encoder.views.levels)
    settings = encoder.settings
    source = settings.labels_from if labels_from == AUTO else labels_from
    labels = settings.labels or labels_from != AUTO
    found = listed(settings.data, part, labels=labels, labels_from=source)
    return found.by_levels(encoder.views.levels)


def feature_records(
    kept: Records | None,
    encoder: RunEncoder,
    images: ImageList,
    options: EncodingOptions,
    on_resume: Callable[[str], None],
) -> Iterator[Record]:
    """Yield the kept records, then compute and keep the missing ones, one per batch.

    Batches begin where they would have begun without an interruption, so that features have the same bits. Files that
    were unreadable when a record was computed are tried again: if one can be read now, its record and all after it are
    computed again. on_resume is called with "N of M images are done" if some records were kept.
    """
    start = 0

    def done() -> str:
        return f"{min(start, len(images)):,} of {len(images):,} images are done"

    for record in kept.records() if kept is not None else ():
        end = _end_of_batch(record, options.batch, start)
        if _is_outdated(record, images, range(start, end if len(record.index) else len(images))):
            assert kept is not None
            kept.cut()
            break
        yield record
        start = end
    if start:
        on_resume(done())
    if start >= len(images):
        return
    try:
        for record in _computed(encoder, images, start, options):
            if kept is not None:
                kept.append(record)
            yield record
            start = _end_of_batch(record, options.batch, start)
            if options.progress is not None:
                options.progress(min(start, len(images)), len(images))
    except KeyboardInterrupt:
        if kept is None:
            raise
        raise KeyboardInterrupt(f"stopped; {done()}; the same command continues") from None


def features_facts(encoder: RunEncoder, images: ImageList) -> dict[str, Any]:
    """Everything that determines the features of a list of images, for JSON."""
    views, settings = encoder.views, encoder.settings
    return {
        "dualtemp": __version__,
        "torch": torch.__version__,
        "device": encoder.device.type,
        "backbone": encoder.fingerprint,
        "network": [settings.backbone, settings.channels_last],
        "view": [views.size, encoder.channels, list(views.mean), list(views.std)],
        "source": valid_text(images.source),
        "list": list_fingerprint(images),
        **({} if views.levels is None else {"levels": [list(pair) for pair in views.levels]}),  # as JSON has them
        **({"quick": True} if encoder.quick else {}),  # only if set, so that features cached before it stay valid
        **({} if (views.interpolation, views.crop) == _USUAL_RESIZE else {"resize": [views.interpolation, views.crop]}),
    }


def list_fingerprint(images: ImageList) -> str:
    """Fingerprint a set in memory by its pixels, others by names and stamps, which change with the content."""
    digest, source = blake2b(digest_size=16), images.images.source
    if images.images.in_memory:
        digest.update(source.fingerprint(None, ()).encode())
    for i, name in enumerate(images.names):
        digest.update(f"{name}\0{source.stamp(i)}".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _computed(encoder: RunEncoder, images: ImageList, start: int, options: EncodingOptions) -> Iterator[Record]:
    """Compute features from image `start` on, one record per batch; unreadable files are listed in the next record."""
    problems: dict[str, str] = {}
    for index, features in encoder.features(
        images.images.since(start), options.batch, options.workers, problems, options.mirrored
    ):
        yield Record(index.numpy() + start, features.numpy(), dict(problems))
        problems.clear()
    if problems:
        yield Record(np.zeros(0, np.int64), np.zeros((0, encoder.width), np.float32), dict(problems))


def _is_outdated(record: Record, images: ImageList, numbers: range) -> bool:
    """Whether one of the images `numbers` that was unreadable when the record was computed can be read now."""
    lost = {name for name, reason in record.problems.items() if isinstance(reason, NotRead)}
    source = images.images.source
    if not lost:
        return False
    for i in range(numbers.start, min(numbers.stop, len(images))):
        if source.names[i] in lost:
            with suppress(UnreadableImage):
                source.pixels(i)
                return True
    return False


def _end_of_batch(record: Record, batch: int, start: int) -> int:
    """Where the batch of the record's last image ends, so that later batches are those of an uninterrupted run."""
    return -(-(int(record.index[-1]) + 1) // batch) * batch if len(record.index) else start
