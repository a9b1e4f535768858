"""Gray images of more than 8 bits: PNG and TIFF of 16 bits or floating point, DICOM.

By default each file is converted to 8 bits by the rules of its format (decode.py, optional_readers.py). With measured
levels, one pair of values, the same for all files, becomes 0 and 255, so that 12-bit values in 16-bit files fill the
range. Levels stay with a run's encoder, like those of stacks (stacks.py). 8-bit and color images are not affected.
"""

import numpy as np
from PIL import Image

from dualtemp.data.loading.stacks import Levels, by_levels

MEASURED = "measured"  # value of the setting `levels`; the other is "full", the whole range of a file's format
RANGE = 65_535  # of 16 bits
NARROW = 0.25  # share of the range below which images come out dark enough for a hint


def is_deep(mode: str) -> bool:
    """Whether a PIL mode is gray of more than 8 bits."""
    return mode == "F" or mode.startswith("I")


def deep_values(image: Image.Image) -> np.ndarray | None:
    """The values of a gray image of more than 8 bits, (H, W, 1); None for all others."""
    if not is_deep(image.mode):
        return None
    values = np.asarray(image)
    return (values if values.dtype.kind == "f" else values.astype(np.int32))[..., None]


def to_eight_bits(image: Image.Image, levels: Levels) -> Image.Image:
    """Convert a gray image of more than 8 bits to "L" by levels; return all others unchanged."""
    values = deep_values(image)
    return image if values is None else Image.fromarray(by_levels(values, levels)[..., 0])
