"""Gray images that are stored in three channels: medical pictures often are.

They keep their three channels: hue, saturation and the turn to gray do nothing to such pixels (they stay equal to the
bit), weights and pretrained starts for color fit, and an image in color that nobody looked at loses nothing.
"""

from torch import Tensor

from dualtemp.data.images import ImageSet, UnreadableImage
from dualtemp.data.sources.catalogue import DEFAULT_VIEW_SIZE

LOOKED_AT = 64  # files, and fewer than twice as many; one in color is enough to end the search
ROUNDING = 3  # levels by which the channels of a gray JPEG may differ


def gray_in_color(images: ImageSet) -> bool:
    """Whether every image looked at (in memory all, of files some) has three channels, and all three alike."""
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
