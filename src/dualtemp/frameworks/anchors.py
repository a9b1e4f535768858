"""The temperatures and weights of a framework's anchors in each step, according to its settings."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from dualtemp import distributed
from dualtemp.frameworks.protocol import Context
from dualtemp.frameworks.temperature_settings import (
    KEPT_PER_IMAGE,
    OF_SCHEDULE,
    OF_WEIGHT,
    TIED_TO_ADAPTIVE,
    AnchorSettings,
)
from dualtemp.losses import dual_temperature
from dualtemp.losses.odds import Weight
from dualtemp.losses.temperature_schedule import AdaptiveTemperature, TemperatureSchedule
from dualtemp.losses.weights import make_weight


class StepTemperatures(NamedTuple):
    """The temperatures of one step: the vector's, and the scalar's, None if the weight has none.

    An adaptive beta is alpha itself.
    """

    alpha: float | AdaptiveTemperature
    beta: float | AdaptiveTemperature | None


class Anchors(nn.Module):
    """The temperatures and weights with which a framework calls its losses. Its state: the values kept per image.

    Args:
        settings: of the framework.
        context: of the run; a schedule needs its length, a memory the number of its images.
        directions: 2 if both views of a pair are anchors at once, else 1.
        pairs: number of losses per step, each with a memory of its own.
    """

    def __init__(self, settings: AnchorSettings, context: Context, *, directions: int, pairs: int = 1) -> None:
        super().__init__()
        self.settings, self.context = settings, context
        kept = settings.weight in KEPT_PER_IMAGE
        options = {name: getattr(settings, name) for name in OF_WEIGHT[settings.weight]} if kept else {}
        images = context.images if kept else None
        self.weights = [make_weight(settings.weight, images, directions, **options) for _ in range(pairs)]
        self.memories = nn.ModuleList(weight for weight in self.weights if isinstance(weight, nn.Module))
        self.alpha = self._schedule("tau_alpha")
        beta = getattr(settings, "tau_beta", "tied")
        self.beta = self.alpha if beta == "tied" else self._schedule("tau_beta")

    def temperatures(self, step: int) -> StepTemperatures:
        """The temperatures at a step of the run, counted from 0."""
        has_beta = "tau_beta" in OF_WEIGHT[self.settings.weight]
        alpha, beta = self.alpha(step), self.beta(step) if has_beta else None
        if self.settings.temperature_schedule != "adaptive":
            return StepTemperatures(alpha, beta)
        adaptive = AdaptiveTemperature(alpha, self.settings.temperature_gain, self.settings.temperature_target)
        follows = self.beta is self.alpha and self.context.computation >= TIED_TO_ADAPTIVE
        return StepTemperatures(adaptive, adaptive if has_beta and follows else beta)

    def weight(self, index: Tensor | None, pair: int = 0) -> dict[str, Any]:
        """The arguments weight and index of a loss with in-batch negatives; index (N,): the images' numbers."""
        weight: Weight = self.weights[pair]
        return {"weight": weight, "index": index if weight.images else None}

    def arguments(self, step: int, index: Tensor | None, pair: int = 0) -> dict[str, Any]:
        """The arguments of `dual_temperature`: temperatures of a step, weight and index."""
        alpha, beta = self.temperatures(step)
        return {"tau_alpha": alpha, "tau_beta": beta, **self.weight(index, pair)}

    def contrast(
        self, q: Tensor, k: Tensor, step: int, index: Tensor | None, pair: int = 0, stats: Any = None, **how: Any
    ) -> Tensor:
        """Loss of one pair of embeddings (N, D) in a step, with negatives from all processes.

        Args:
            q: anchors.
            k: keys.
            step: of the run, from 0.
            index: the images' numbers, (N,).
            pair: which of the step's losses this is.
            stats: a dict that receives values for logging.
            how: further arguments of `dual_temperature`: both_directions, both_views.
        """
        matched = getattr(self.settings, "match_step", False)
        stats = {} if matched and stats is None else stats
        loss = dual_temperature(q, k, gather=True, stats=stats, **self.arguments(step, index, pair), **how)
        return loss * mean_weight_ratio(stats) if matched else loss

    def _schedule(self, name: str) -> TemperatureSchedule:
        kind, end = self.settings.temperature_schedule, getattr(self.settings, f"{name}_end", None)
        start = float(getattr(self.settings, name))
        if end is None or f"{name}_end" not in OF_SCHEDULE[kind]:
            return TemperatureSchedule("constant", start)
        epochs = self.settings.temperature_period if kind == "cosine" else None
        steps = (epochs or self.context.epochs) * self.context.epoch_steps
        return TemperatureSchedule(kind, start, end, steps)  # pyright: ignore[reportArgumentType]


def mean_weight_ratio(stats: dict[str, Tensor]) -> Tensor:
    """mean W(tau_alpha) / mean W(tau_beta) over the anchors of all processes, 0-d, from the `stats` of a loss."""
    # 1 - p loses digits of single anchors, but not of their mean.
    at_alpha = distributed.global_mean((1 - stats["p_pos"]).mean())
    return at_alpha / distributed.global_mean(stats["W"].mean())
