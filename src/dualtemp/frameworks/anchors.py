"""Temperatures and weights of a framework's anchors, step by step, as its settings say."""

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
    """Of one step: the vector's, and the scalar's where the weight has one; if adaptive, both are the same."""

    alpha: float | AdaptiveTemperature
    beta: float | AdaptiveTemperature | None


class Anchors(nn.Module):
    """What the losses of a framework are called with. Numbers that are kept per image are its state.

    Args:
        settings: of the framework.
        context: of the run; a schedule needs its length, a memory the number of its images.
        directions: 2 where both views of a pair are anchors at once, else 1.
        pairs: losses of a step, each with a memory of its own.
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
        """Those of a step of the run, from 0."""
        has_beta = "tau_beta" in OF_WEIGHT[self.settings.weight]
        alpha, beta = self.alpha(step), self.beta(step) if has_beta else None
        if self.settings.temperature_schedule != "adaptive":
            return StepTemperatures(alpha, beta)
        adaptive = AdaptiveTemperature(alpha, self.settings.temperature_gain, self.settings.temperature_target)
        follows = self.beta is self.alpha and self.context.computation >= TIED_TO_ADAPTIVE
        return StepTemperatures(adaptive, adaptive if has_beta and follows else beta)

    def weight(self, index: Tensor | None, pair: int = 0) -> dict[str, Any]:
        """Arguments weight and index of a loss with in-batch negatives, of images with these numbers (N,)."""
        weight: Weight = self.weights[pair]
        return {"weight": weight, "index": index if weight.images else None}

    def arguments(self, step: int, index: Tensor | None, pair: int = 0) -> dict[str, Any]:
        """Arguments of `dual_temperature`: temperatures of a step, weight and index."""
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
            index: which images these are, (N,).
            pair: which of the step's losses this is.
            stats: a dict that receives what there is to log.
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
    """mean W(tau_alpha) / mean W(tau_beta) over the anchors of all processes, 0-d, from what a loss has logged."""
    at_alpha = distributed.global_mean((1 - stats["p_pos"]).mean())  # a mean: what cancels in one anchor is lost in it
    return at_alpha / distributed.global_mean(stats["W"].mean())
