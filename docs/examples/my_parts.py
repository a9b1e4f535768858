"""A recipe and a backbone of one's own: `dualtemp train --plugin my_parts.py --recipe gentle --backbone tiny ...`."""

from torch import nn

from dualtemp.data import Augmentation, Jitter, recipe
from dualtemp.models import backbone


@recipe("gentle")
def gentle() -> Augmentation:
    """The same for both views; `Recipe(first, second)` has them differ."""
    return Augmentation(scale=(0.5, 1.0), jitter=Jitter(0.2, 0.2, 0.2, 0.0), grayscale=0.0)


@backbone("tiny")
def tiny(image_size: int, channels: int) -> nn.Module:
    """Any module that turns images (N, channels, image_size, image_size) into features (N, F)."""
    return nn.Sequential(*layer(channels, 16), *layer(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def layer(before: int, after: int) -> tuple[nn.Module, ...]:
    """Halve the sides."""
    return nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
