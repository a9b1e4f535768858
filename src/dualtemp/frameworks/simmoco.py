"""SimMoCo: keys from a momentum encoder, negatives from the current batch; no dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import AnchorWeight, Context, Framework, Passes
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import (
    READ_AS,
    AnchorSettings,
    InBatchVersions,
    TwoTemperatures,
    both_views,
    key_momentum,
    match_step,
    predictor,
    projector_batch_norm,
    symmetric,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simmoco", place=2)
class SimMoCo(InBatchVersions, Framework):
    """One query pass and one gradient-free key pass a step; two of each in the "+" variant."""

    class Settings(AnchorSettings, TwoTemperatures):
        """Two temperatures, how anchors are weighed, the key encoder, and which views negatives come from."""

        key_momentum: float = key_momentum()
        symmetric: bool = symmetric()
        both_views: bool = both_views()
        match_step: bool = match_step()
        predictor: bool = predictor()
        projector_batch_norm: bool = projector_batch_norm()
        added_later = AnchorSettings.added_later | {"predictor", "projector_batch_norm"}

    takes_index = True

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.key_network = network, parts.MomentumCopy(network.key_part())
        self.anchors = parts.Anchors(settings, context, directions=1, pairs=1 + settings.symmetric)
        self.key_momentum, self.symmetric, self.both_views = (
            settings.key_momentum,
            settings.symmetric,
            settings.both_views,
        )

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear: 512-128-128 for ResNet-18; wider with batch norm."""
        projector = parts.contrastive_projector(features, batch_norm=settings.projector_batch_norm)
        return projector, parts.contrastive_predictor() if settings.predictor else None

    @staticmethod
    def passes(settings: Settings) -> Passes:
        """One query and one key; twice that in the "+" variant."""
        return Passes(2, 2) if settings.symmetric else Passes(1, 1)

    @staticmethod
    def anchor_weight(settings: Settings) -> AnchorWeight:
        """Depends on the chosen weight."""
        return READ_AS[settings.weight]

    def forward(
        self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int, index: Tensor | None = None
    ) -> parts.Step:
        """Contrast queries of one view (N, C, H, W) with keys of the other."""
        stats: dict[str, Tensor] = {}
        how: dict[str, Any] = {"both_views": self.both_views, "both_directions": False}
        q, k = self.network(views[0]), self.key_network(views[1])
        loss = self.anchors.contrast(q.prediction, k.projection, step, index, stats=stats, **how)
        if self.symmetric:
            other, key = self.network(views[1]), self.key_network(views[0])
            loss = (loss + self.anchors.contrast(other.prediction, key.projection, step, index, pair=1, **how)) / 2
        return parts.Step(loss, q.features.detach(), stats)

    def after_step(self) -> None:
        """Let the key encoder follow."""
        self.key_network.follow(self.network.key_part(), self.key_momentum)
