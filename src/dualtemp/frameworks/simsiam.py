"""SimSiam: a predictor and a stop-gradient, no momentum, no negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, Temperatures
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import WITHOUT_NEGATIVES, HardnessWeight, projector_width

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simsiam", place=6)
class SimSiam(Framework):
    """Two passes a step (eq:loss_noncl, symmetric): as published, the mean of both halves of -cos."""

    class Settings(HardnessWeight):
        """Whether anchors are weighed, and the heads."""

        projector_width: int = projector_width(2048)
        added_later = HardnessWeight.added_later | {"projector_width"}

    advice_on_collapse = WITHOUT_NEGATIVES

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network = network
        self.hardness_aware, self.tau_weight = settings.hardness_aware, settings.tau_weight

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """A three-layer projector with batch norm after each layer, and a predictor with a quarter-width bottleneck."""
        width = settings.projector_width
        return parts.simsiam_projector(features, width, width), parts.simsiam_predictor(width, max(1, width // 4))

    @staticmethod
    def weighs_anchors(settings: Settings) -> bool:
        """Only if `hardness_aware` is set."""
        return settings.hardness_aware

    @staticmethod
    def temperatures(settings: Settings) -> Temperatures:
        """Both are that of the weight."""
        return Temperatures(settings.tau_weight, settings.tau_weight)

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> parts.Step:
        """Predict the projection of each view (N, C, H, W) from the other's."""
        first, second = self.network(views[0]), self.network(views[1])
        k1, k2 = first.projection.detach(), second.projection.detach()
        stats: dict[str, Tensor] = {}
        loss = parts.weighted_cosine(first.prediction, k2, self.hardness_aware, self.tau_weight, stats)
        loss = (loss + parts.weighted_cosine(second.prediction, k1, self.hardness_aware, self.tau_weight)) / 2
        return parts.Step(parts.global_mean(loss), first.features.detach(), stats)
