"""SimCLR: one encoder, both views, one temperature, negatives of both views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import AnchorWeight, Context, Framework
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import READ_AS, AnchorSettings, OneTemperature

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simclr", place=4)
class SimCLR(Framework):
    """Two passes a step."""

    class Settings(AnchorSettings, OneTemperature):
        """One temperature, and how anchors are weighed."""

    takes_index = True

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.anchors = network, parts.Anchors(settings, context, directions=2)

    @staticmethod
    def heads(settings: Any, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear; the hidden layer is as wide as the features."""
        return parts.simclr_projector(features), None

    @staticmethod
    def anchor_weight(settings: Settings) -> AnchorWeight:
        """Depends on the chosen weight."""
        return READ_AS[settings.weight]

    def forward(
        self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int, index: Tensor | None = None
    ) -> parts.Step:
        """Contrast each view (N, C, H, W) with all others of the batch."""
        q, k = self.network(views[0]), self.network(views[1])
        stats: dict[str, Tensor] = {}
        tau = self.anchors.temperatures(step).alpha
        loss = parts.nt_xent(q.projection, k.projection, tau, gather=True, stats=stats, **self.anchors.weight(index))
        return parts.Step(loss, q.features.detach(), stats)
