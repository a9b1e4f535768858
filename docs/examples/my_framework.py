"""A framework of one's own: `dualtemp train --plugin my_framework.py --method invariance --decorrelation 0.1 ...`.

It pulls the two views together and keeps the projections' features from repeating each other (Barlow Twins' idea,
with its strength as a setting).
"""

from pydantic import Field
from torch import Tensor, nn

from dualtemp.distributed import gather
from dualtemp.frameworks import Context, Framework, FrameworkSettings, Network, Passes, Step, framework
from dualtemp.models import mlp


@framework("invariance")
class Invariance(Framework):
    """Cross-correlation of the two views, driven to the identity."""

    class Settings(FrameworkSettings):
        """Each becomes a flag, a key of config.yaml and a Python argument."""

        decorrelation: float = Field(0.01, gt=0, description="Weight of correlations between different features.")
        width: int = Field(256, ge=1, description="Width of the projection.")

    compares_views = False  # there are no anchors to look at

    def __init__(self, settings: Settings, network: Network, context: Context) -> None:
        self.network, self.settings = network, settings
        self.normalize = nn.BatchNorm1d(settings.width, affine=False)  # a module: saved with the run

    @staticmethod
    def heads(settings: Settings, features: int, context: Context) -> tuple[nn.Module, None]:
        """Linear, batch norm, ReLU, Linear; no predictor."""
        return mlp(features, settings.width, settings.width, batch_norm=True), None

    @staticmethod
    def passes(settings: Settings) -> Passes:
        """Both views, with gradient."""
        return Passes(query=2)

    @staticmethod
    def weighs_anchors(settings: Settings) -> bool:
        """There is no weight."""
        return False

    def forward(self, views: tuple[Tensor, Tensor], labels: Tensor | None, step: int) -> Step:
        """One step on two views (N, C, H, W)."""
        first, second = self.network(views[0]), self.network(views[1])
        a, b = (self.normalize(gather(each.projection)) for each in (first, second))  # (batch, width)
        correlation = a.T @ b / len(a)
        diagonal = correlation.diagonal()
        rest = correlation.square().sum() - diagonal.square().sum()
        loss = (1 - diagonal).square().sum() + self.settings.decorrelation * rest
        return Step(loss, first.features.detach(), {})
