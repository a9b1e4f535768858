"""Mean and standard deviation of the channels, for pixels in [0, 1]."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from dualtemp.data.image_source import ImageSource, as_source
from dualtemp.data.loading.decode import UnreadableImage
from dualtemp.data.sources.catalogue import DEFAULT_VIEW_SIZE
from dualtemp.errors import UserError
from dualtemp.lazy import lazily
from dualtemp.machine import cores

Normalization = tuple[tuple[float, ...], tuple[float, ...]]

CIFAR10: Normalization = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
# Of the training images.
OF_SETS: dict[str, Normalization] = {
    "cifar10": CIFAR10,
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "stl10": ((0.4467, 0.4398, 0.4066), (0.2603, 0.2566, 0.2713)),
    "imagenet100": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "fashion-mnist": ((0.2860,), (0.3530,)),
}
_VALUES_AT_ONCE = 1 << 22
_FILES = 256  # fewest files to measure, if there are so many; fewer than twice as many are used


def normalization(name: str, pixels: Tensor | ImageSource) -> Normalization:
    """Mean and std for a set: the listed ones, else measured on the images.

    name: the source as the user named it ("cifar10"), never a name taken from a path, so that results do not depend on
    paths; pixels: its training images, uint8 (N, C, H, W) or files.
    """
    return _listed(name, pixels) or measured(pixels)


def earlier_normalization(name: str, pixels: Tensor | ImageSource) -> Normalization:
    """The normalization of old runs that did not record theirs: CIFAR-10's for every RGB set that is not listed."""
    return _listed(name, pixels) or (CIFAR10 if as_source(pixels).channels == 3 else measured(pixels))


def _listed(name: str, pixels: Tensor | ImageSource) -> Normalization | None:
    found = OF_SETS.get(name)
    return found if found is not None and len(found[0]) == as_source(pixels).channels else None


def measured(pixels: Tensor | ImageSource) -> Normalization:
    """Mean and std of all pixels of each channel, to 4 digits; of files, only up to 511 evenly spaced images are read.

    Color images in files are decoded at about the size of their views. A constant channel gets a std of 1. Sums are
    integers, so that every machine gets the same result.
    """
    channels = as_source(pixels).channels
    sums = torch.zeros(2, channels, dtype=torch.int64)  # of the values, and of their squares
    count = 0
    for part in _parts(as_source(pixels)):
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


def _parts(source: ImageSource) -> Iterator[Tensor]:
    """The images in pieces of at most some million values: uint8 (n, C, H, W)."""
    if source.tensor is not None:
        yield from source.tensor.split(max(1, _VALUES_AT_ONCE // max(1, source.tensor[:1].numel())))
        return
    # Gray images are decoded at full size, as ever, so that old runs that did not record these values get them again.
    source = source.convert(enough=DEFAULT_VIEW_SIZE) if source.channels == 3 else source

    def read(i: int) -> Tensor | None:
        try:
            return source.pixels(i).unsqueeze(0)
        except UnreadableImage:
            return None

    with ThreadPoolExecutor(cores()) as pool:  # Pillow releases the GIL while decoding
        for image in pool.map(read, range(0, len(source), max(1, len(source) // _FILES))):
            if image is not None:
                yield image


__getattr__, _ = lazily(__name__, {}, renamed={"normalisation": "dualtemp.data.normalization.normalization"})
