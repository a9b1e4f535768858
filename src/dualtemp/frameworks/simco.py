"""SimCo: one encoder, both views, gradient on both sides; no dictionary, no momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings, temperatures_of
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import Temperature, both_views, tau_alpha, tau_beta

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simco")
class SimCo(Framework):
    """Two passes a step (eq:alter_imple, both directions)."""

    class Settings(FrameworkSettings):
        """Two temperatures, and whose views the negatives are."""

        tau_alpha: float = tau_alpha()
        tau_beta: Temperature = tau_beta()
        both_views: bool = both_views()

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.both_views = network, settings.both_views
        self.tau_alpha, self.tau_beta = temperatures_of(settings)

    @staticmethod
    def heads(settings: Any, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear: 512-128-128 for ResNet-18."""
        return parts.contrastive_projector(features), None

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> parts.Step:
        """Contrast the two views (N, C, H, W) with each other."""
        q, k = self.network(views[0]), self.network(views[1])
        stats: dict[str, Tensor] = {}
        loss = parts.dual_temperature(
            q.projection,
            k.projection,
            self.tau_alpha,
            self.tau_beta,
            both_views=self.both_views,
            gather=True,
            stats=stats,
        )
        return parts.Step(loss, q.features.detach(), stats)
