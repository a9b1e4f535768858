"""Gray images of more than 8 bits: PNG and TIFF of 16 bits or floating point, DICOM.

By default they become 8 bits by rules for each file (decode.py, optional_readers.py). With measured levels one pair of
values, the same for all files, becomes 0 and 255: 12 bits in a file of 16 then fill the range. Levels go with a run's
encoder as those of stacks do (stacks.py). Images of 8 bits and images in color stay as they are.
"""

import numpy as np
from PIL import Image

from dualtemp.data.loading.stacks import Levels, by_levels

MEASURED = "measured"  # of the setting `levels`; else "full", the whole range of a file's format
RANGE = 65_535  # of 16 bits
NARROW = 0.25  # share of the range below which images come out so dark that it is worth a word


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
    """A gray image of more than 8 bits by levels as "L"; all others as they are."""
    values = deep_values(image)
    return image if values is None else Image.fromarray(by_levels(values, levels)[..., 0])
