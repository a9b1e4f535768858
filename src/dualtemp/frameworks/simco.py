"""SimCo: one encoder, both views, gradient on both sides; no dictionary, no momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import AnchorWeight, Context, Framework
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import READ_AS, AnchorSettings, TwoTemperatures, both_views

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simco")
class SimCo(Framework):
    """Two passes a step (eq:alter_imple, both directions)."""

    class Settings(AnchorSettings, TwoTemperatures):
        """Two temperatures, how anchors are weighed, and whose views the negatives are."""

        both_views: bool = both_views()

    takes_index = True

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.both_views = network, settings.both_views
        self.anchors = parts.Anchors(settings, context, directions=2)

    @staticmethod
    def heads(settings: Any, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear: 512-128-128 for ResNet-18."""
        return parts.contrastive_projector(features), None

    @staticmethod
    def anchor_weight(settings: Settings) -> AnchorWeight:
        """By the chosen weight."""
        return READ_AS[settings.weight]

    def forward(
        self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int, index: Tensor | None = None
    ) -> parts.Step:
        """Contrast the two views (N, C, H, W) with each other."""
        q, k = self.network(views[0]), self.network(views[1])
        stats: dict[str, Tensor] = {}
        loss = parts.dual_temperature(
            q.projection,
            k.projection,
            both_views=self.both_views,
            gather=True,
            stats=stats,
            **self.anchors.arguments(step, index),
        )
        return parts.Step(loss, q.features.detach(), stats)
