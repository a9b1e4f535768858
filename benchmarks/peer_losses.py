"""The losses of other libraries in dualtemp's own frame: a plugin, for a check that ours are not weak beside them.

    dualtemp grid docs/results/small-batches/peers.yaml --plugin benchmarks/peer_losses.py

Network, heads, views, optimizer and measures are SimCo's; the loss of the two projections is the library's. Each has a
member of the family with the same gradient, up to a constant factor, in SimCo with --both-views.
"""

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from dualtemp.frameworks import Context, Framework, FrameworkSettings, Network, Step, framework
from dualtemp.models.heads import contrastive_projector
from dualtemp.torchvision_operators import declare_missing_operators

TAU = 0.1
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of q, k (N, D) and the images' numbers (N,)


def lightly_ntxent(images: int) -> Loss:
    """SimCLR's; ours: tau_beta tied."""
    from lightly.loss import NTXentLoss

    loss = NTXentLoss(temperature=TAU)
    return lambda q, k, index: loss(q, k)


def lightly_dcl(images: int) -> Loss:
    """DCL's; ours: weight equal."""
    from lightly.loss import DCLLoss

    loss = DCLLoss(temperature=TAU)
    return lambda q, k, index: loss(q, k)


def libauc_gcl(images: int) -> Loss:
    """SogCLR's; ours: weight memory."""
    from libauc.losses.contrastive import GCLoss_v2  # pyright: ignore[reportMissingImports]

    loss = GCLoss_v2(N=images, tau=TAU, gamma=0.9)
    return lambda q, k, index: loss(F.normalize(q, dim=1), F.normalize(k, dim=1), index)[0]


LOSSES: dict[str, Callable[[int], Loss]] = {
    "lightly NTXentLoss": lightly_ntxent,
    "lightly DCLLoss": lightly_dcl,
    "libauc GCLoss": libauc_gcl,
}


@framework("peer")
class Peer(Framework):
    """Two passes a step, then the loss of another library."""

    class Settings(FrameworkSettings):
        """Which one."""

        peer_loss: Literal["lightly NTXentLoss", "lightly DCLLoss", "libauc GCLoss"] = Field(
            "lightly NTXentLoss", description="Library and name of the loss."
        )

    takes_index = True
    compares_views = False  # its anchors are not asked what they weigh

    def __init__(self, settings: Settings, network: Network, context: Context) -> None:
        declare_missing_operators()  # both libraries import torchvision
        self.network, self.loss = network, LOSSES[settings.peer_loss](context.images)

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, None]:
        """SimCo's with batch norm."""
        return contrastive_projector(features, batch_norm=True), None

    @staticmethod
    def weighs_anchors(settings: Settings) -> bool:
        """Not known from outside."""
        return False

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int, index: Tensor) -> Step:
        """One step on two views (N, C, H, W)."""
        q, k = self.network(views[0]), self.network(views[1])
        return Step(self.loss(q.projection, k.projection, index), q.features.detach(), {})
