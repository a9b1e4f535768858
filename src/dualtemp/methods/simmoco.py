"""SimMoCo: keys from a momentum encoder, negatives from the current batch; no dictionary."""

from torch import Tensor, nn

from dualtemp.losses import dual_temperature
from dualtemp.methods.network import Network, Step
from dualtemp.models.momentum import MomentumCopy


class SimMoCo(nn.Module):
    """One query pass and one gradient-free key pass a step; two of each in the "+" variant."""

    def __init__(
        self,
        network: Network,
        tau_alpha: float,
        tau_beta: float,
        key_momentum: float,
        symmetric: bool = False,
        both_views: bool = False,
    ) -> None:
        super().__init__()
        self.network, self.key_network = network, MomentumCopy(network.key_part())
        self.tau_alpha, self.tau_beta, self.key_momentum = tau_alpha, tau_beta, key_momentum
        self.symmetric, self.both_views = symmetric, both_views

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> Step:
        """One step: views are two (N, C, H, W)."""
        stats: dict[str, Tensor] = {}
        q = self.network(views[0])
        loss = self._loss(q.projection, self.key_network(views[1]).projection, stats)
        if self.symmetric:
            other = self._loss(self.network(views[1]).projection, self.key_network(views[0]).projection)
            loss = (loss + other) / 2
        return Step(loss, q.features.detach(), stats)

    def after_step(self) -> None:
        """Let the key encoder follow."""
        self.key_network.follow(self.network.key_part(), self.key_momentum)

    def _loss(self, q: Tensor, k: Tensor, stats: dict[str, Tensor] | None = None) -> Tensor:
        return dual_temperature(
            q,
            k,
            self.tau_alpha,
            self.tau_beta,
            both_directions=False,
            both_views=self.both_views,
            gather=True,
            stats=stats,
        )
