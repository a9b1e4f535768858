"""The network of a framework, and the results of a pass and of a step."""

from typing import NamedTuple

from torch import Tensor, nn


class Embedding(NamedTuple):
    """The embedding of one view: features (N, F) of the backbone, projection (N, D), and prediction (N, D).

    Without a predictor, the prediction is the projection.
    """

    features: Tensor
    projection: Tensor
    prediction: Tensor


class Network(nn.Module):
    """Backbone, projector and, if the framework has one, predictor."""

    def __init__(self, backbone: nn.Module, projector: nn.Module, predictor: nn.Module | None = None) -> None:
        super().__init__()
        self.backbone, self.projector, self.predictor = backbone, projector, predictor

    def forward(self, view: Tensor) -> Embedding:
        """Embed one view (N, C, H, W)."""
        features = self.backbone(view)
        projection = self.projector(features)
        return Embedding(features, projection, projection if self.predictor is None else self.predictor(projection))

    def key_part(self) -> "Network":
        """Backbone and projector, sharing these modules; a momentum copy follows them."""
        return Network(self.backbone, self.projector)


class Step(NamedTuple):
    """The result of a framework's step."""

    loss: Tensor  # a scalar, the mean over all processes
    features: Tensor  # (N, F) of the first view, detached, for the online probe
    stats: dict[str, Tensor]  # W, p_pos, r_pos of this process's anchors, for logging
