"""Check a source: counts, classes, sizes, modes, unreadable files, the split, fingerprints."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from dualtemp.data.deep_gray import narrow_range
from dualtemp.data.grayscale import gray_in_color
from dualtemp.data.image_source import ImageSource
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.decode import UnreadableImage
from dualtemp.data.sources.copies import Twins, twins
from dualtemp.data.sources.folder import folder_files, refuse_misnamed_parts
from dualtemp.data.sources.opening import image_folder, open_source
from dualtemp.progress_bar import image_progress, status_line


@dataclass(frozen=True)
class PartFacts:
    """One part. classes: images by class name; sizes: images by "width x height"; modes: images by PIL mode."""

    images: int
    classes: dict[str, int]
    sizes: dict[str, int]
    modes: dict[str, int]
    fingerprint: str


@dataclass(frozen=True)
class SourceFacts:
    """A whole source.

    kept: "one tensor" or "files"; unreadable: file name -> reason; narrow: the share of 16 bits that gray images use,
    if it is small.
    """

    source: str
    split: str
    kept: str
    channels: int
    parts: dict[str, PartFacts]
    unreadable: dict[str, str] = field(default_factory=dict)
    gray_in_color: bool = False
    narrow: float | None = None
    twins: Twins = field(default_factory=Twins)


def check_source(source: str, labels: bool = True, download: bool = True) -> SourceFacts:
    """Open a source and look at every image; files are decoded one by one."""
    with status_line(f"opening {source}"):
        splits = open_source(source, labels=labels, download=download)
    folder = image_folder(source)
    if folder is not None and labels:
        refuse_misnamed_parts(folder)
    unreadable = {each.name: each.reason for each in splits.unreadable}
    files = {} if folder is None else folder_files(folder, labels)
    parts = {}
    for name, images in splits.parts().items():
        stored = files[name] if images.in_memory and name in files else images.source
        sizes, modes, broken = _facts(stored)
        unreadable |= broken
        parts[name] = PartFacts(len(images), _class_counts(images), sizes, modes, images.fingerprint)
    with status_line("looking for copies"):
        found = twins(splits.train, splits.test, splits.unlabeled)
    kept = "one tensor" if splits.train.in_memory else "files"
    gray = gray_in_color(splits.train)
    narrow = narrow_range(splits.train)
    return SourceFacts(source, splits.split, kept, splits.train.channels, parts, unreadable, gray, narrow, found)


def _class_counts(images: ImageSet) -> dict[str, int]:
    if images.labels is None:
        return {}
    counts = images.labels[images.labels >= 0].bincount(minlength=len(images.classes)).tolist()
    return dict(zip(images.classes, counts, strict=True))


def _facts(source: ImageSource) -> tuple[dict[str, int], dict[str, int], dict[str, str]]:
    """Images by size and by mode, and why some cannot be read."""
    if source.tensor is not None:
        height, width, mode = source.header(0)
        return {f"{width} x {height}": len(source)}, {mode: len(source)}, {}
    sizes, modes, broken = Counter[str](), Counter[str](), {}

    def look(i: int) -> tuple[str, str] | UnreadableImage:
        try:
            height, width, mode = source.header(i)
            source.open(i)
        except UnreadableImage as error:
            return error
        return f"{width} x {height}", mode

    # Threads are enough, since Pillow releases the GIL while decoding.
    with ThreadPoolExecutor(os.cpu_count()) as pool, image_progress() as show:
        for done, found in enumerate(pool.map(look, range(len(source))), 1):
            if isinstance(found, UnreadableImage):
                broken[found.name] = found.reason
            else:
                sizes[found[0]] += 1
                modes[found[1]] += 1
            if show is not None:
                show(done, len(source))
    return dict(sizes.most_common()), dict(modes.most_common()), broken
