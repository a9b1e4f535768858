"""Measure the levels of gray images of more than 8 bits on a run's training images (see loading/gray_levels.py)."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from dualtemp.data.images import ImageSet, Splits, UnreadableImage
from dualtemp.data.loading.gray_levels import NARROW, RANGE
from dualtemp.data.loading.stacks import Levels, measured_levels, of_stack
from dualtemp.errors import UserError

NARROW_HINT = (
    "gray of 16 bits, of whose range these images use {percent:.2g} %, so that they come out dark: --levels measured"
)


def measure_levels(images: ImageSet) -> Levels | None:
    """Measure the levels on some evenly spaced images; None if none of them has more than 8 bits."""

    def read(i: int) -> np.ndarray | None:
        with suppress(UnreadableImage):
            return images.source.deep_gray(i)
        return None

    return measured_levels(len(images), read)


def require_levels(images: ImageSet) -> Levels:
    """Measure the levels of gray images; a UserError if there is nothing to measure."""
    if images.channels != 1:
        raise UserError(f"levels measured: {images.name} has images in color; leave the levels out, or give gray ones")
    if (levels := measure_levels(images)) is None:
        raise UserError(f"levels measured: {images.name} has no gray image of more than 8 bits; leave the levels out")
    return levels


def with_levels(splits: Splits, levels: Levels) -> Splits:
    """Read all parts of a set with the same levels."""
    parts = {name: part if part is None else _by(part, levels) for name, part in _parts(splits).items()}
    return replace(splits, **parts)


def has_stacks(splits: Splits) -> bool:
    """Whether these are stacks of channels, whose levels are always measured."""
    return of_stack(splits.train.source.levels)


def narrow_range(images: ImageSet) -> float | None:
    """The share of the 16-bit range that gray images use, if it is so small that they come out dark; else None."""
    if images.channels != 1 or images.source.levels is not None or not _has_integers(images):
        return None
    levels = measure_levels(images)
    share = 1.0 if levels is None else (levels[0][1] - min(0.0, levels[0][0])) / RANGE
    return share if share < NARROW else None


def _has_integers(images: ImageSet) -> bool:
    """Whether the first readable image has integer values of more than 8 bits."""
    for i in range(min(8, len(images))):
        with suppress(UnreadableImage):
            values = images.source.deep_gray(i)
            return values is not None and values.dtype.kind == "i"
    return False


def _by(part: ImageSet, levels: Levels) -> ImageSet:
    try:
        return part.convert(part.channels, levels)
    except TypeError:  # a plugin's source whose `convert` takes no levels
        raise UserError(
            f"levels measured: {part.name} is read by a plugin that does not support levels; leave them out"
        ) from None


def _parts(splits: Splits) -> dict[str, ImageSet | None]:
    return {"train": splits.train, "test": splits.test, "unlabeled": splits.unlabeled}
