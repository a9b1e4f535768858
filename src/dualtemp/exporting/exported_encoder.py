"""The encoder that is exported, and the same with its normalization inside."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.data.augment.views import Views


@dataclass(frozen=True)
class ExportedEncoder:
    """A backbone on the CPU in eval mode, how to build it (`models.describe_backbone`), and its views.

    normalizes: whether graphs take uint8 pixels and normalize them themselves.
    """

    backbone: nn.Module
    recipe: dict[str, Any]
    views: Views
    normalizes: bool = False

    @property
    def channels(self) -> int:
        """Channels of the images."""
        return len(self.views.mean)

    def graph(self) -> nn.Module:
        """The module that graphs are made of."""
        return NormalizingEncoder(self.backbone, self.views).eval() if self.normalizes else self.backbone

    def pixels(self, count: int) -> Tensor:
        """Random uint8 pixels (count, C, size, size), always the same."""
        shape = (count, self.channels, self.views.size, self.views.size)
        return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    def graph_input(self, pixels: Tensor) -> Tensor:
        """What the graph takes for these pixels: themselves, or normalized."""
        return pixels if self.normalizes else self.views.normalize(pixels)


class NormalizingEncoder(nn.Module):
    """Normalizes uint8 pixels (N, C, H, W) and encodes them."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, views: Views) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("mean", torch.tensor(views.mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(views.std).view(-1, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (N, F)."""
        return self.backbone((pixels.to(torch.float32) / 255.0 - self.mean) / self.std)
