"""SimSiam: a predictor and a stop-gradient, no momentum, no negatives."""

from torch import Tensor, nn

from dualtemp import distributed
from dualtemp.methods.hardness_weight import weighted_cosine
from dualtemp.methods.network import Network, Step


class SimSiam(nn.Module):
    """Two passes a step (eq:loss_noncl, symmetric): as published, the mean of both halves of -cos."""

    def __init__(self, network: Network, hardness_aware: bool, tau_weight: float) -> None:
        super().__init__()
        self.network, self.hardness_aware, self.tau_weight = network, hardness_aware, tau_weight

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> Step:
        """One step: views are two (N, C, H, W)."""
        first, second = self.network(views[0]), self.network(views[1])
        k1, k2 = first.projection.detach(), second.projection.detach()
        stats: dict[str, Tensor] = {}
        loss = weighted_cosine(first.prediction, k2, self.hardness_aware, self.tau_weight, stats)
        loss = (loss + weighted_cosine(second.prediction, k1, self.hardness_aware, self.tau_weight)) / 2
        return Step(distributed.global_mean(loss), first.features.detach(), stats)

    def after_step(self) -> None:
        """Nothing follows the optimiser's step."""
