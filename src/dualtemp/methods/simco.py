"""SimCo: one encoder, both views, gradient on both sides; no dictionary, no momentum."""

from torch import Tensor, nn

from dualtemp.losses import dual_temperature
from dualtemp.methods.network import Network, Step


class SimCo(nn.Module):
    """Two passes a step (eq:alter_imple, both directions)."""

    def __init__(self, network: Network, tau_alpha: float, tau_beta: float, both_views: bool = False) -> None:
        super().__init__()
        self.network = network
        self.tau_alpha, self.tau_beta, self.both_views = tau_alpha, tau_beta, both_views

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> Step:
        """One step: views are two (N, C, H, W)."""
        q, k = self.network(views[0]), self.network(views[1])
        stats: dict[str, Tensor] = {}
        loss = dual_temperature(
            q.projection,
            k.projection,
            self.tau_alpha,
            self.tau_beta,
            both_views=self.both_views,
            gather=True,
            stats=stats,
        )
        return Step(loss, q.features.detach(), stats)

    def after_step(self) -> None:
        """Nothing follows the optimiser's step."""
