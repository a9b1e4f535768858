"""VICReg: no negatives, no predictor, no momentum; the dimensions of the embedding are kept apart instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import projector_width

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("vicreg", place=8)
class VICReg(Framework):
    """Two passes a step: invariance of the views, variance and covariance over the batch."""

    class Settings(FrameworkSettings):
        """The weights of the three terms, and the projector."""

        invariance: float = Field(25.0, ge=0, description="Weight of the distance of an image's two views.")
        variance: float = Field(25.0, ge=0, description="Weight of the penalty on dimensions that hardly vary.")
        covariance: float = Field(1.0, ge=0, description="Weight of the penalty on dimensions that vary together.")
        projector_width: int = projector_width()

    compares_views = False  # images are not compared with each other: there are no anchors
    advice_on_collapse = (
        "Try a larger --variance, which holds the features apart, a lower --lr or more --warmup-epochs."
    )

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.settings = network, settings

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Three layers of one width, with batch norm and ReLU after the first two."""
        return parts.three_layer_projector(features, settings.projector_width), None

    @staticmethod
    def weighs_anchors(settings: Any) -> bool:
        """There is no weight W."""
        return False

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> parts.Step:
        """Compare two views (N, C, H, W) image by image, and each with itself dimension by dimension."""
        first, second, chosen = self.network(views[0]), self.network(views[1]), self.settings
        loss = parts.vicreg(
            first.projection,
            second.projection,
            chosen.invariance,
            chosen.variance,
            chosen.covariance,
            gather=True,
        )
        return parts.Step(loss, first.features.detach(), {})
