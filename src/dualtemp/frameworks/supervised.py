"""Supervised learning with cross-entropy, CE, or with two temperatures, CE(DT) (eq:ce)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from dualtemp.frameworks import parts
from dualtemp.frameworks.protocol import Context, Framework, FrameworkSettings, Passes, temperatures_of
from dualtemp.frameworks.registry import framework
from dualtemp.frameworks.temperature_settings import Temperature, tau_alpha, tau_beta

if TYPE_CHECKING:
    from torch import Tensor, nn


@framework("supervised", place=7)
class Supervised(Framework):
    """One pass a step; the network's projector is the linear classifier."""

    class Settings(FrameworkSettings):
        """Two temperatures, and label noise."""

        tau_alpha: float = tau_alpha(1.0)
        tau_beta: Temperature = tau_beta(1.0)
        label_noise: float = Field(0.0, ge=0, le=1, description="Share of training labels made wrong.")
        noise: Literal["symmetric", "asymmetric"] = Field("symmetric", description="How they are made wrong.")

        def without_effect(self) -> dict[str, str]:
            """Without label noise, its kind has no effect; setting it is harmless."""
            return {"noise": ""} if self.label_noise == 0 else {}

    views = 1
    learns_from_labels = True
    compares_views = False

    def __init__(self, settings: Settings, network: parts.Network, context: Context) -> None:
        self.network = network
        self.tau_alpha, self.tau_beta = temperatures_of(settings)

    @staticmethod
    def heads(settings: Any, features: int, context: Context) -> tuple[nn.Module, nn.Module | None]:
        """The classifier."""
        return parts.linear(features, context.classes), None

    @staticmethod
    def passes(settings: Any) -> Passes:
        """One view, with gradient."""
        return Passes(query=1)

    def forward(self, views: tuple[Tensor, ...], labels: Tensor | None, step: int) -> parts.Step:
        """Classify the one view (N, C, H, W); labels (N,)."""
        assert labels is not None
        made = self.network(views[0])
        stats: dict[str, Tensor] = {}
        loss = parts.cross_entropy(made.projection, labels, self.tau_alpha, self.tau_beta, stats=stats)
        return parts.Step(parts.global_mean(loss), made.features.detach(), stats)
