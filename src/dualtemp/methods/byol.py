"""BYOL: a predictor on one side, a momentum encoder on the other, no negatives."""

from torch import Tensor, nn

from dualtemp import distributed
from dualtemp.methods.hardness_weight import weighted_cosine, weighted_distance
from dualtemp.methods.network import Network, Step
from dualtemp.models.momentum import MomentumCopy


class BYOL(nn.Module):
    """Two query passes and two gradient-free key passes a step (eq:loss_noncl, symmetric).

    As published, each half of the loss is the squared distance 2 - 2 cos of prediction and key, and both are summed.
    `computation` 1 is what this package had before: the mean of both halves of -cos, a quarter of that gradient.
    """

    def __init__(
        self, network: Network, key_momentum: float, hardness_aware: bool, tau_weight: float, computation: int = 2
    ) -> None:
        super().__init__()
        self.computation = computation
        self.network, self.key_network = network, MomentumCopy(network.key_part())
        self.key_momentum, self.hardness_aware, self.tau_weight = key_momentum, hardness_aware, tau_weight

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> Step:
        """One step: views are two (N, C, H, W)."""
        first, second = self.network(views[0]), self.network(views[1])
        k1, k2 = (self.key_network(view).projection for view in views)
        stats: dict[str, Tensor] = {}
        half = weighted_cosine if self.computation == 1 else weighted_distance
        loss = half(first.prediction, k2, self.hardness_aware, self.tau_weight, stats)
        loss = loss + half(second.prediction, k1, self.hardness_aware, self.tau_weight)
        if self.computation == 1:
            loss = loss / 2
        return Step(distributed.global_mean(loss), first.features.detach(), stats)

    def after_step(self) -> None:
        """Let the key encoder follow."""
        self.key_network.follow(self.network.key_part(), self.key_momentum)
