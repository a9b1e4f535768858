"""Read small images of one size into a tensor, once; all other images stay in files.

The headers decide: all images must have one size, no side above 96 px, and 1 GiB at most in total. They also decide
between gray and color: a set is gray if every image is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dualtemp.data.image_source import ImageSource
from dualtemp.data.loading.decode import UnreadableImage, is_gray
from dualtemp.data.loading.gray_levels import is_deep
from dualtemp.data.loading.stacks import MIXED, channels_of_stack

LARGEST_SIDE = 96
LARGEST_TOTAL = 1 << 30
STACKS = 64  # after this many stacks and no other image, the set is taken for one of stacks


@dataclass(frozen=True)
class HeaderFacts:
    """The facts found in the headers.

    channels: 1 if all images are gray, for stacks those of the first one, else 3; common_size: (H, W) if the images
    should be in a tensor; stacks: whether all images are stacks of channels (stacks.py); deep: whether some are gray of
    more than 8 bits.
    """

    looked_at: int
    readable: int
    channels: int
    common_size: tuple[int, int] | None
    unreadable: tuple[UnreadableImage, ...]
    stacks: bool = False
    deep: bool = False


def survey(parts: Sequence[ImageSource]) -> HeaderFacts:
    """Read headers until all facts are known: for large color images, a few files are enough.

    Stacks of channels do not mix with other images: among gray and color images they count as unreadable.
    """
    total = sum(len(part) for part in parts)
    sizes: set[tuple[int, int]] = set()
    channels, readable, looked_at, deep = 1, 0, 0, False
    unreadable: list[UnreadableImage] = []
    stacks: list[int] = []  # channels of each
    for images in parts:
        for i, name in enumerate(images.names):
            looked_at += 1
            try:
                height, width, mode = images.header(i)
            except UnreadableImage as error:
                unreadable.append(UnreadableImage(name, error.reason))
                continue
            if (bands := channels_of_stack(mode)) is not None:
                stacks.append(bands)
                unreadable.append(UnreadableImage(name, MIXED.format(bands)))
                if len(stacks) == STACKS and not readable:
                    return HeaderFacts(looked_at, STACKS, stacks[0], None, (), stacks=True)
                continue
            readable += 1
            sizes.add((height, width))
            channels = channels if is_gray(mode) else 3
            deep = deep or is_deep(mode)
            if channels == 3 and _common_size(sizes, total, channels) is None:
                return HeaderFacts(looked_at, readable, channels, None, tuple(unreadable))
    if stacks and not readable:
        return HeaderFacts(looked_at, len(stacks), stacks[0], None, (), stacks=True)
    size = _common_size(sizes, total, channels)
    return HeaderFacts(looked_at, readable, channels, size, tuple(unreadable), deep=deep)


def _common_size(sizes: set[tuple[int, int]], total: int, channels: int) -> tuple[int, int] | None:
    """The size (H, W) that all images have, if they are small enough for a tensor; else None."""
    if len(sizes) != 1:
        return None
    ((height, width),) = sizes
    small = max(height, width) <= LARGEST_SIDE and total * height * width * channels <= LARGEST_TOTAL
    return (height, width) if small else None


def load_files(images: ImageSource, size: tuple[int, int]) -> tuple[torch.Tensor, np.ndarray, list[UnreadableImage]]:
    """Decode all files: uint8 (M, C, H, W), the indices int64 (M,) of readable files, and the unreadable files."""
    pixels = np.empty((len(images), images.channels, *size), dtype=np.uint8)
    kept, lost = [], []
    for i in range(len(images)):
        try:
            image = images.open(i)
            if (image.height, image.width) != size:
                raise UnreadableImage(images.names[i], f"{image.width} x {image.height} px, its header says otherwise")
        except UnreadableImage as error:
            lost.append(error)
            continue
        pixels[len(kept)] = np.asarray(image).reshape(*size, images.channels).transpose(2, 0, 1)
        kept.append(i)
    return torch.from_numpy(pixels[: len(kept)]), np.array(kept, dtype=np.int64), lost
