"""Mean and standard deviation of the channels, for pixels in [0, 1]."""

from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from dualtemp.data.images import FileImages, UnreadableImage
from dualtemp.data.photographs import to_tensor
from dualtemp.errors import UserError

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]

CIFAR10: Normalisation = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
# Of the training images. The paper's scripts take CIFAR-10's for everything; so does every RGB set not listed here.
OF_SETS: dict[str, Normalisation] = {
    "cifar10": CIFAR10,
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "stl10": ((0.4467, 0.4398, 0.4066), (0.2603, 0.2566, 0.2713)),
    "imagenet100": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "fashion-mnist": ((0.2860,), (0.3530,)),
}
_VALUES_AT_ONCE = 1 << 22
_MOST_FILES = 256


def normalisation(name: str, pixels: Tensor | FileImages) -> Normalisation:
    """Mean and std for a set: the listed ones, CIFAR-10's for other RGB images, else computed from the images.

    name: the source as it was asked for ("cifar10"), never a name taken from a path, so that results do not depend on
    paths; pixels: its training images, uint8 (N, C, H, W) or files.
    """
    channels = pixels.channels if isinstance(pixels, FileImages) else pixels.shape[1]
    if name in OF_SETS and len(OF_SETS[name][0]) == channels:
        return OF_SETS[name]
    return CIFAR10 if channels == 3 else measured(pixels)


def measured(pixels: Tensor | FileImages) -> Normalisation:
    """Mean and std of all pixels of each channel (files: of up to 256, evenly spread over the set), to 4 digits.

    A channel that never changes gets a std of 1. The sums are integers, so that every machine finds the same.
    """
    channels = pixels.channels if isinstance(pixels, FileImages) else pixels.shape[1]
    sums = torch.zeros(2, channels, dtype=torch.int64)  # of the values, and of their squares
    count = 0
    for part in _parts(pixels):
        values = part.to(torch.int64)
        sums += torch.stack((values.sum((0, 2, 3)), values.square().sum((0, 2, 3)))).cpu()
        count += values[:, 0].numel()
    if count == 0:
        raise UserError("no image can be read to measure its mean and deviation: check them with `dualtemp data`.")
    mean, squares = sums.to(torch.float64) / count
    std = (squares - mean.square()).clamp(min=0.0).sqrt()
    std = torch.where(std == 0, 255.0, std)
    return tuple(round(v, 4) for v in (mean / 255).tolist()), tuple(
        max(round(v, 4), 1e-4) for v in (std / 255).tolist()
    )


def _parts(pixels: Tensor | FileImages) -> Iterator[Tensor]:
    """The images in pieces of at most some million values: uint8 (n, C, H, W)."""
    if isinstance(pixels, Tensor):
        yield from pixels.split(max(1, _VALUES_AT_ONCE // max(1, pixels[:1].numel())))
        return
    for i in range(0, len(pixels), max(1, len(pixels) // _MOST_FILES)):
        with suppress(UnreadableImage):
            yield to_tensor(pixels.open(i)).unsqueeze(0)
