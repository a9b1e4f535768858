"""SimCLR: one encoder, both views, one temperature, negatives of both views."""

from torch import Tensor, nn

from dualtemp.losses import nt_xent
from dualtemp.methods.network import Network, Step


class SimCLR(nn.Module):
    """Two passes a step."""

    def __init__(self, network: Network, tau: float) -> None:
        super().__init__()
        self.network, self.tau = network, tau

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> Step:
        """One step: views are two (N, C, H, W)."""
        q, k = self.network(views[0]), self.network(views[1])
        stats: dict[str, Tensor] = {}
        loss = nt_xent(q.projection, k.projection, self.tau, gather=True, stats=stats)
        return Step(loss, q.features.detach(), stats)

    def after_step(self) -> None:
        """Nothing follows the optimiser's step."""
