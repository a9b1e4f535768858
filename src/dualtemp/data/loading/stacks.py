"""Stacks: TIFF files of other than one or three channels, such as satellite images, of integers or floating point.

A stack is the first page of a TIFF file whose channels are neither gray nor color. It is converted to 8 bits by levels:
for each channel, the values that become 0 and 255. They are measured once, on a run's training images, and stay with
its encoder wherever it is used: what was black in training stays black.
"""

import io
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

Levels = tuple[tuple[float, float], ...]  # the values that become 0 and 255, per channel

LOOKED_AT = 64  # evenly spaced images that levels are measured on; fewer than twice as many
PIXELS = 1 << 14  # per image, evenly spaced; fewer than twice as many
SHARES = (0.1, 99.9)  # percentiles of the values; the extremes would let a few hot pixels take the whole range
_KINDS = "uif"  # unsigned and signed integers, floating point
_RGB = 2  # of TIFF's PhotometricInterpretation


class Stack(NamedTuple):
    """The header of a stack: sides, number of channels, type of the values ("uint16")."""

    height: int
    width: int
    channels: int
    values: str

    def __str__(self) -> str:
        """Such as "4 x uint16": the mode of such an image."""
        return f"{self.channels} x {self.values}"


MIXED = "{} channels, where images of 1 or 3 are expected: give such files a folder of their own"


def channels_of_stack(mode: str) -> int | None:
    """The number of channels that a mode names, if it is that of a stack."""
    found = re.fullmatch(r"(\d+) x [a-z]+\d+", mode)
    return None if found is None else int(found[1])


def of_stack(levels: Levels | None) -> bool:
    """Whether levels are those of a stack; a single pair is for gray images (gray_levels.py)."""
    return levels is not None and len(levels) != 1


class IsStack(Exception):
    """Raised for a stack where a gray or color image was expected."""

    def __init__(self, stack: Stack) -> None:
        """Keep the header of the stack."""
        super().__init__(MIXED.format(stack.channels))
        self.stack = stack


def stack_of(page: Any) -> Stack | None:
    """The header of a page of tifffile if it is a stack, else None."""
    axes, shape = page.axes, page.shape
    if sorted(axes) != ["S", "X", "Y"] or page.dtype is None or page.dtype.kind not in _KINDS:
        return None
    channels = shape[axes.index("S")]
    if channels in (1, 3) or (channels == 4 and int(page.photometric) == _RGB):  # RGB with transparency
        return None
    return Stack(shape[axes.index("Y")], shape[axes.index("X")], channels, str(page.dtype))


def read_stack(encoded: Path | bytes, most: int) -> np.ndarray:
    """The stored values of a stack, (H, W, C); ValueError if the file is no stack, or has more than `most` pixels."""
    import tifffile

    with tifffile.TiffFile(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded) as file:
        page: Any = file.pages[0]
        stack = stack_of(page)
        if stack is None:
            raise ValueError("gray or color, and the other images are stacks of channels")
        if stack.height * stack.width > most:
            raise ValueError(f"{stack.width} x {stack.height}: more than {most // 1_000_000} million pixels")
        return np.moveaxis(page.asarray(), page.axes.index("S"), -1)


def by_levels(values: np.ndarray, levels: Levels, enough: int | None = None) -> np.ndarray:
    """(H, W, C) of any type -> uint8 (H, W, C), reduced by a whole factor like others; ValueError if C differs."""
    if values.shape[-1] != len(levels):
        raise ValueError(f"{values.shape[-1]} channels, and the other images have {len(levels)}")
    low, high = np.array(levels, dtype=np.float32).T
    within = np.nan_to_num(values.astype(np.float32), nan=0.0).clip(low, high)
    found = ((within - low) * (255.0 / (high - low))).round().astype(np.uint8)
    factor = 1 if enough is None else min(found.shape[:2]) // enough
    if factor < 2:
        return found
    channels = [Image.fromarray(np.ascontiguousarray(found[..., c])).reduce(factor) for c in range(found.shape[-1])]
    return np.stack([np.asarray(each) for each in channels], -1)


def measured_levels(count: int, read: Callable[[int], np.ndarray | None]) -> Levels | None:
    """Measure the levels of `count` images; read: returns the values (H, W, C) of one, None if it is unreadable.

    If all images have 8 bits, the levels are 0 and 255, which changes nothing. Returns None if no image is readable.
    """
    values = [_some_pixels(found) for i in _evenly(count) if (found := read(i)) is not None]
    if not values:
        return None
    if all(found.dtype == np.uint8 for found in values):
        return ((0.0, 255.0),) * values[0].shape[-1]
    return tuple(_ends(channel) for channel in np.concatenate(values).astype(np.float64).T)


def _ends(values: np.ndarray) -> tuple[float, float]:
    """The levels of one channel; NaN and infinity mark missing values, and are ignored."""
    known = values[np.isfinite(values)]
    low, high = np.percentile(known, SHARES).tolist() if len(known) else (0.0, 1.0)
    return low, high if high > low else low + 1.0


def as_levels(given: Sequence[Sequence[float]] | None) -> Levels | None:
    """Convert levels from JSON; ValueError or TypeError if they are not valid."""
    if given is None:
        return None
    found = tuple((float(low), float(high)) for low, high in given)
    if not found or not all(low < high for low, high in found):
        raise ValueError("levels: pairs of a lower and a higher value expected")
    return found


def _evenly(count: int) -> Iterable[int]:
    return range(0, count, max(1, count // LOOKED_AT))


def _some_pixels(values: np.ndarray) -> np.ndarray:
    flat = values.reshape(-1, values.shape[-1])
    return flat[:: max(1, len(flat) // PIXELS)]
