"""Turn random words into augmentation parameters for each image of a batch, with torchvision's distributions.

This happens on the CPU, so that the images which an operation touches are known without waiting for a device, and in
float64, so that the parameters are the same on every machine.
"""

from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor

from dualtemp.data.augment.color import NOTHING
from dualtemp.data.augment.philox import Slot, integer_below, uniform
from dualtemp.data.augment.recipes import Augmentation

_ORDERS = torch.tensor(list(permutations(range(4))))  # (24, 4)


@dataclass(frozen=True)
class Parameters:
    """Parameters of the operations on N images after the crop; all on the CPU.

    flipped, jittered, gray, blurred, solarized: bool (N,); factors: float64 (N, 4), brightness, contrast, saturation,
    hue; order: int64 (N, 4), the numbers of these four in the order to apply them, NOTHING if the image is not
    jittered; sigma: float64 (N,).
    """

    flipped: Tensor
    jittered: Tensor
    factors: Tensor
    order: Tensor
    gray: Tensor
    blurred: Tensor
    sigma: Tensor
    solarized: Tensor


def drawn_parameters(random: Tensor, augmentation: Augmentation) -> Parameters:
    """Words of all slots (SLOTS, N) -> Parameters."""
    unit = uniform(random)
    jitter, blur = augmentation.jitter, augmentation.blur
    strengths = (0.0, 0.0, 0.0, 0.0)
    if jitter is not None:
        strengths = (jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue)
    strengths = torch.tensor(strengths, dtype=torch.float64).unsqueeze(1)
    jittered = unit[Slot.JITTER] < (0.0 if jitter is None else jitter.probability)
    order = _ORDERS[integer_below(random[Slot.JITTER_ORDER], len(_ORDERS))]
    order = torch.where(jittered.unsqueeze(1), order, NOTHING)
    center = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64).unsqueeze(1)
    low = center - strengths
    low[:3].clamp_(min=0.0)
    factors = low + unit[Slot.BRIGHTNESS : Slot.HUE + 1] * (center + strengths - low)
    low_sigma, high_sigma = (1.0, 1.0) if blur is None else blur.sigma
    return Parameters(
        flipped=unit[Slot.FLIP] < augmentation.flip,
        jittered=jittered,
        factors=factors.T,
        order=order,
        gray=unit[Slot.GRAYSCALE] < augmentation.grayscale,
        blurred=unit[Slot.BLUR] < (0.0 if blur is None else blur.probability),
        sigma=low_sigma + unit[Slot.BLUR_SIGMA] * (high_sigma - low_sigma),
        solarized=unit[Slot.SOLARIZE] < augmentation.solarize,
    )
