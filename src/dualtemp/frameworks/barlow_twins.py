"""Barlow Twins: no negatives, no predictor, no momentum; the dimensions of the embedding are decorrelated instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import projector_width

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("barlow_twins", place=9)
class BarlowTwins(Framework):
    """Two passes a step: the cross-correlation matrix of the two views over the batch is driven to the identity."""

    class Settings(FrameworkSettings):
        """The weight of the second term, the factor of the loss, and the projector."""

        redundancy: float = Field(0.005, ge=0, description="Weight of correlations between different dimensions.")
        # The loss sums over dimensions, so it needs small steps: at lr .03 it learns less without the authors' factor.
        loss_scale: float = Field(0.024, gt=0, description="Factor of the whole loss, which is a sum over dimensions.")
        projector_width: int = projector_width()

    compares_views = False  # images are not compared with each other: there are no anchors
    advice_on_collapse = "Try a lower --lr or more --warmup-epochs; a larger --redundancy holds dimensions apart."

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.redundancy, self.loss_scale = network, settings.redundancy, settings.loss_scale

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Three layers of one width, with batch norm and ReLU after the first two."""
        return parts.three_layer_projector(features, settings.projector_width), None

    @staticmethod
    def weighs_anchors(settings: Any) -> bool:
        """There is no weight W."""
        return False

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> parts.Step:
        """Correlate two views (N, C, H, W), dimension by dimension."""
        first, second = self.network(views[0]), self.network(views[1])
        loss = parts.barlow_twins(first.projection, second.projection, self.redundancy, gather=True)
        return parts.Step(self.loss_scale * loss, first.features.detach(), {})
