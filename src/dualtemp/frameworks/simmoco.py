"""SimMoCo: keys from a momentum encoder, negatives from the current batch; no dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings, Passes, temperatures_of
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import (
    Temperature,
    both_views,
    key_momentum,
    predictor,
    symmetric,
    tau_alpha,
    tau_beta,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simmoco", place=2)
class SimMoCo(Framework):
    """One query pass and one gradient-free key pass a step; two of each in the "+" variant."""

    class Settings(FrameworkSettings):
        """Two temperatures, the key encoder, and whose views the negatives are."""

        tau_alpha: float = tau_alpha()
        tau_beta: Temperature = tau_beta()
        key_momentum: float = key_momentum()
        symmetric: bool = symmetric()
        both_views: bool = both_views()
        predictor: bool = predictor()
        added_later = FrameworkSettings.added_later | {"predictor"}

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.key_network = network, parts.MomentumCopy(network.key_part())
        self.tau_alpha, self.tau_beta = temperatures_of(settings)
        self.key_momentum, self.symmetric, self.both_views = (
            settings.key_momentum,
            settings.symmetric,
            settings.both_views,
        )

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear: 512-128-128 for ResNet-18."""
        return parts.contrastive_projector(features), parts.contrastive_predictor() if settings.predictor else None

    @staticmethod
    def passes(settings: Settings) -> Passes:
        """One query and one key; twice that in the "+" variant."""
        return Passes(2, 2) if settings.symmetric else Passes(1, 1)

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> parts.Step:
        """Contrast queries of one view (N, C, H, W) with keys of the other."""
        stats: dict[str, Tensor] = {}
        q = self.network(views[0])
        loss = self._loss(q.prediction, self.key_network(views[1]).projection, stats)
        if self.symmetric:
            other = self._loss(self.network(views[1]).prediction, self.key_network(views[0]).projection)
            loss = (loss + other) / 2
        return parts.Step(loss, q.features.detach(), stats)

    def after_step(self) -> None:
        """Let the key encoder follow."""
        self.key_network.follow(self.network.key_part(), self.key_momentum)

    def _loss(self, q: Tensor, k: Tensor, stats: dict[str, Tensor] | None = None) -> Tensor:
        return parts.dual_temperature(
            q,
            k,
            self.tau_alpha,
            self.tau_beta,
            both_directions=False,
            both_views=self.both_views,
            gather=True,
            stats=stats,
        )
