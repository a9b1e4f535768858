"""The network of a framework, and what one pass through it gives."""

from typing import NamedTuple

from torch import Tensor, nn


class Embedding(NamedTuple):
    """Of one view: features (N, F) of the backbone, projection (N, D), and prediction (N, D) where there is a head."""

    features: Tensor
    projection: Tensor
    prediction: Tensor


class Network(nn.Module):
    """Backbone, projector and, for BYOL and SimSiam, predictor."""

    def __init__(self, backbone: nn.Module, projector: nn.Module, predictor: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone, self.projector, self.predictor = backbone, projector, predictor

    def forward(self, view: Tensor) -> Embedding:
        """Embed one view (N, C, H, W)."""
        features = self.backbone(view)
        projection = self.projector(features)
        return Embedding(features, projection, projection if self.predictor is None else self.predictor(projection))

    def key_part(self) -> "Network":
        """Backbone and projector, the same modules: what a momentum copy follows."""
        return Network(self.backbone, self.projector)


class Step(NamedTuple):
    """What a framework makes of a step."""

    loss: Tensor  # a scalar, the mean over all processes
    features: Tensor  # (N, F) of the first view, detached: what the online probe learns from
    stats: dict[str, Tensor]  # W, p_pos, r_pos of this process's anchors, for logging
