"""Random crops: the boxes of torchvision's RandomResizedCrop, drawn for a whole batch at once."""

import math

import torch
from torch import Tensor

from dualtemp.data.augment.philox import Slot, integer_below, uniform, words

TRIES = 10


def random_crops(
    random: Tensor, heights: Tensor, widths: Tensor, scale: tuple[float, float], ratio: tuple[float, float]
) -> Tensor:
    """Draw boxes (N, 4) int64: top, left, height, width.

    random: words of slots CROP_AREA .. CROP_LEFT, (22, N), on the CPU; heights, widths: int64 (N,).
    Takes the first of ten tries that fits, else the largest central crop with an aspect within the ratio.
    """
    area = (heights * widths).to(torch.float64) * uniform(random[Slot.CROP_AREA : Slot.CROP_AREA + TRIES], *scale)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = uniform(random[Slot.CROP_RATIO : Slot.CROP_RATIO + TRIES], low, high).exp_()
    tried_heights = (area / aspect).sqrt_().round_().to(torch.int64)  # (10, N)
    tried_widths = (area * aspect).sqrt_().round_().to(torch.int64)
    fits = (tried_heights > 0) & (tried_heights <= heights) & (tried_widths > 0) & (tried_widths <= widths)
    first = fits.to(torch.uint8).argmax(0, keepdim=True)  # the first of equal maxima
    found = fits.gather(0, first)[0]
    centered = central_crops(heights, widths, ratio)
    height = torch.where(found, tried_heights.gather(0, first)[0], centered[:, 2])
    width = torch.where(found, tried_widths.gather(0, first)[0], centered[:, 3])
    top = torch.where(found, integer_below(random[Slot.CROP_TOP], heights - height + 1), centered[:, 0])
    left = torch.where(found, integer_below(random[Slot.CROP_LEFT], widths - width + 1), centered[:, 1])
    return torch.stack((top, left, height, width), 1)


def central_crops(heights: Tensor, widths: Tensor, ratio: tuple[float, float]) -> Tensor:
    """The largest central crops with an aspect inside ratio: boxes (N, 4) as in random_crops."""
    aspect = widths.to(torch.float64) / heights
    narrow, wide = aspect < ratio[0], aspect > ratio[1]
    # At least one pixel: if a side has one or two, a ratio far from 1 would round to none.
    height = torch.where(narrow, (widths.to(torch.float64) / ratio[0]).round().to(torch.int64).clamp(min=1), heights)
    width = torch.where(wide, (heights.to(torch.float64) * ratio[1]).round().to(torch.int64).clamp(min=1), widths)
    return torch.stack(((heights - height) // 2, (widths - width) // 2, height, width), 1)


def crop_words(seed: int, epoch: int, index: Tensor, view: int) -> Tensor:
    """Draw only the words that random_crops needs: (22, N)."""
    return words(seed, epoch, index, view, Slot.CROP_AREA, Slot.CROP_LEFT + 1)
