"""SimCo: one encoder, both views, gradient on both sides; no dictionary, no momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings, temperatures_of
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import Temperature, both_views, predictor, tau_alpha, tau_beta

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simco", place=3)
class SimCo(Framework):
    """Two passes a step (eq:alter_imple, both directions)."""

    class Settings(FrameworkSettings):
        """Two temperatures, and whose views the negatives are."""

        tau_alpha: float = tau_alpha()
        tau_beta: Temperature = tau_beta()
        both_views: bool = both_views()
        predictor: bool = predictor()
        added_later = FrameworkSettings.added_later | {"predictor"}

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.both_views, self.predictor = network, settings.both_views, settings.predictor
        self.tau_alpha, self.tau_beta = temperatures_of(settings)

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear: 512-128-128 for ResNet-18."""
        return parts.contrastive_projector(features), parts.contrastive_predictor() if settings.predictor else None

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> parts.Step:
        """Contrast the two views (N, C, H, W) with each other."""
        q, k = self.network(views[0]), self.network(views[1])
        stats: dict[str, Tensor] = {}
        if self.predictor:  # predictions are queries, projections keys: no longer one pair in two directions
            loss = self._loss(q.prediction, k.projection, stats, both_directions=False)
            loss = (loss + self._loss(k.prediction, q.projection, None, both_directions=False)) / 2
        else:
            loss = self._loss(q.projection, k.projection, stats)
        return parts.Step(loss, q.features.detach(), stats)

    def _loss(self, q: Tensor, k: Tensor, stats: dict[str, Tensor] | None, both_directions: bool = True) -> Tensor:
        return parts.dual_temperature(
            q,
            k,
            self.tau_alpha,
            self.tau_beta,
            both_directions=both_directions,
            both_views=self.both_views,
            gather=True,
            stats=stats,
        )
