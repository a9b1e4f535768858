"""Detect gray images that are stored in three channels, as medical images often are.

They keep their three channels. Hue, saturation and random grayscale leave such pixels unchanged, bit for bit; weights
and pretrained starts for color images fit; and if an image that was not checked has colors, these are not lost.
"""

from torch import Tensor

from dualtemp.data.images import ImageSet, UnreadableImage
from dualtemp.data.sources.catalogue import DEFAULT_VIEW_SIZE

LOOKED_AT = 64  # at least this many files are checked, fewer than twice as many; one in color ends the search
ROUNDING = 3  # gray levels by which the channels of a gray JPEG may differ


def gray_in_color(images: ImageSet) -> bool:
    """Whether every image checked (all in memory, or some of the files) has three channels that are equal."""
    if images.channels != 3:
        return False
    if images.source.tensor is not None:
        return all(_alike(part) for part in images.source.tensor.split(1024))
    source, seen = images.source.convert(enough=DEFAULT_VIEW_SIZE), False
    for i in range(0, len(source), max(1, len(source) // LOOKED_AT)):
        try:
            image = source.pixels(i)
        except UnreadableImage:
            continue
        if not _alike(image.unsqueeze(0)):
            return False
        seen = True
    return seen


def _alike(pixels: Tensor) -> bool:
    """uint8 (N, 3, H, W)."""
    values = pixels.short()
    return int((values.amax(1) - values.amin(1)).amax()) <= ROUNDING
