"""SimCo: one encoder, both views, gradient on both sides; no dictionary, no momentum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import AnchorWeight, Context, Framework
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import (
    READ_AS,
    AnchorSettings,
    InBatchVersions,
    TwoTemperatures,
    both_views,
    match_step,
    predictor,
    projector_batch_norm,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("simco", place=3)
class SimCo(InBatchVersions, Framework):
    """Two passes a step (eq:alter_imple, both directions)."""

    class Settings(AnchorSettings, TwoTemperatures):
        """Two temperatures, how anchors are weighed, and which views negatives come from."""

        both_views: bool = both_views()
        match_step: bool = match_step()
        predictor: bool = predictor()
        projector_batch_norm: bool = projector_batch_norm()
        added_later = AnchorSettings.added_later | {"predictor", "projector_batch_norm"}

    takes_index = True

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network, self.both_views, self.predictor = network, settings.both_views, settings.predictor
        one_way = settings.predictor
        self.anchors = parts.Anchors(settings, context, directions=1 if one_way else 2, pairs=2 if one_way else 1)

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """Linear, ReLU, Linear: 512-128-128 for ResNet-18; wider with batch norm."""
        projector = parts.contrastive_projector(features, batch_norm=settings.projector_batch_norm)
        return projector, parts.contrastive_predictor() if settings.predictor else None

    @staticmethod
    def anchor_weight(settings: Settings) -> AnchorWeight:
        """Depends on the chosen weight."""
        return READ_AS[settings.weight]

    def forward(
        self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int, index: Tensor | None = None
    ) -> parts.Step:
        """Contrast the two views (N, C, H, W) with each other."""
        q, k = self.network(views[0]), self.network(views[1])
        stats: dict[str, Tensor] = {}
        how: dict[str, Any] = {"both_views": self.both_views, "both_directions": not self.predictor}
        if self.predictor:  # predictions are queries and projections keys, so the two directions are two pairs
            loss = self.anchors.contrast(q.prediction, k.projection, step, index, stats=stats, **how)
            other = self.anchors.contrast(k.prediction, q.projection, step, index, pair=1, **how)
            loss = (loss + other) / 2
        else:
            loss = self.anchors.contrast(q.projection, k.projection, step, index, stats=stats, **how)
        return parts.Step(loss, q.features.detach(), stats)
