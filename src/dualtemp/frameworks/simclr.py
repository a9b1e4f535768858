"""SimCLR: one encoder, both views, one temperature, negatives of both views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import tau_alpha

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simclr", place=4)
class SimCLR(Framework):
    """Two passes a step."""

    class Settings(FrameworkSettings):
        """One temperature."""

        tau_alpha: float = tau_alpha()

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.tau = network, settings.tau_alpha

    @staticmethod
    def heads(settings: Any, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear; the hidden layer is as wide as the features."""
        return parts.simclr_projector(features), None

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> parts.Step:
        """Contrast each view (N, C, H, W) with all others of the batch."""
        q, k = self.network(views[0]), self.network(views[1])
        stats: dict[str, Tensor] = {}
        loss = parts.nt_xent(q.projection, k.projection, self.tau, gather=True, stats=stats)
        return parts.Step(loss, q.features.detach(), stats)
