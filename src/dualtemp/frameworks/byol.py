"""BYOL: a predictor on one side, a momentum encoder on the other, no negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, Passes, Temperatures
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import WITHOUT_NEGATIVES, HardnessWeight, key_momentum

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("byol", place=5)
class BYOL(Framework):
    """Two query passes and two gradient-free key passes a step (eq:loss_noncl, symmetric).

    As published, each half of the loss is the squared distance 2 - 2 cos of prediction and key, and both are summed.
    Version 1, which came before, is the mean of -cos over both halves, with a quarter of that gradient.
    """

    class Settings(HardnessWeight):
        """The key encoder, and the weight of anchors."""

        key_momentum: float = key_momentum()

    version = 2
    advice_on_collapse = WITHOUT_NEGATIVES

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.key_network = network, parts.MomentumCopy(network.key_part())
        self.key_momentum, self.computation = settings.key_momentum, context.computation
        self.hardness_aware, self.tau_weight = settings.hardness_aware, settings.tau_weight

    @staticmethod
    def heads(settings: Any, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Projector and predictor alike: Linear, batch norm, ReLU, Linear."""
        return parts.byol_projector(features), parts.byol_predictor()

    @staticmethod
    def passes(settings: Any) -> Passes:
        """Each view once with gradient, once without."""
        return Passes(2, 2)

    @staticmethod
    def weighs_anchors(settings: Settings) -> bool:
        """Only if `hardness_aware` is set."""
        return settings.hardness_aware

    @staticmethod
    def temperatures(settings: Settings) -> Temperatures:
        """Both are that of the weight."""
        return Temperatures(settings.tau_weight, settings.tau_weight)

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> parts.Step:
        """Predict the key of each view (N, C, H, W) from the other view."""
        first, second = self.network(views[0]), self.network(views[1])
        k1, k2 = (self.key_network(view).projection for view in views)
        stats: dict[str, Tensor] = {}
        half = parts.weighted_cosine if self.computation == 1 else parts.weighted_distance
        loss = half(first.prediction, k2, self.hardness_aware, self.tau_weight, stats)
        loss = loss + half(second.prediction, k1, self.hardness_aware, self.tau_weight)
        if self.computation == 1:
            loss = loss / 2
        return parts.Step(parts.global_mean(loss), first.features.detach(), stats)

    def after_step(self) -> None:
        """Let the key encoder follow."""
        self.key_network.follow(self.network.key_part(), self.key_momentum)
