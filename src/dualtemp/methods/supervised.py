"""Supervised learning with cross-entropy, CE, or with two temperatures, CE(DT) (eq:ce)."""

from torch import Tensor, nn

from dualtemp import distributed
from dualtemp.losses import cross_entropy
from dualtemp.methods.network import Network, Step


class Supervised(nn.Module):
    """One pass a step; the network's projector is the linear classifier."""

    def __init__(self, network: Network, tau_alpha: float, tau_beta: float) -> None:
        super().__init__()
        self.network, self.tau_alpha, self.tau_beta = network, tau_alpha, tau_beta

    def forward(self, views: tuple[Tensor, ...], labels: Tensor | None, step: int) -> Step:
        """One step: views are one (N, C, H, W); labels (N,)."""
        assert labels is not None
        made = self.network(views[0])
        stats: dict[str, Tensor] = {}
        loss = cross_entropy(made.projection, labels, self.tau_alpha, self.tau_beta, stats=stats)
        return Step(distributed.global_mean(loss), made.features.detach(), stats)

    def after_step(self) -> None:
        """Nothing follows the optimiser's step."""
