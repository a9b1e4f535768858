"""Temperatures that change while training: with the step, or with what the encoder has learned. Needs no torch.

schedule = TemperatureSchedule("cosine", start=1.0, end=0.1, steps=200 * steps_of_an_epoch)
for step, (view1, view2) in enumerate(batches):
    criterion.tau_alpha = schedule(step)
    ...
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

ScheduleKind = Literal["constant", "cosine", "linear"]


@dataclass(frozen=True)
class TemperatureSchedule:
    """A temperature as a function of the step alone, so that a resumed run has the same one.

    "cosine" swings between both ends (arXiv 2303.13664): end + (start - end) (1 + cos(2 pi step / steps)) / 2. "linear"
    goes from start to end in `steps` steps, and stays there. "constant" is start.

    Args:
        kind: "constant", "cosine" or "linear".
        start: temperature of step 0; may be inf if constant.
        end: "cosine" reaches it half a period later, "linear" after `steps`. Not needed if constant.
        steps: the period of "cosine", the length of "linear". Not needed if constant.

    Example:
        >>> TemperatureSchedule("linear", start=0.5, end=0.1, steps=100)(50)
        0.3
    """

    kind: ScheduleKind = "constant"
    start: float = 0.1
    end: float | None = None
    steps: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no temperature."""
        if self.kind not in get_args(ScheduleKind):
            raise ValueError(f"kind must be one of {', '.join(get_args(ScheduleKind))}, got {self.kind!r}")
        moves = self.kind != "constant"
        if not self.start > 0 or (moves and math.isinf(self.start)):
            raise ValueError(f"start must be a number > 0{' (finite)' * moves}, got {self.start}")
        if moves and not (self.end is not None and 0 < self.end < math.inf):
            raise ValueError(f"a {self.kind} schedule needs end, a number > 0 (finite), got {self.end}")
        if moves and not (self.steps is not None and 0 < self.steps < math.inf):
            raise ValueError(f"a {self.kind} schedule needs steps, a number > 0 (finite), got {self.steps}")

    def __call__(self, step: int) -> float:
        """The temperature at a step, from 0."""
        if self.end is None or self.steps is None or self.kind == "constant":
            return self.start
        if self.kind == "linear":
            share = min(step / self.steps, 1.0)
            tau = self.start + (self.end - self.start) * share
        else:
            tau = self.end + (self.start - self.end) * (1 + math.cos(2 * math.pi * step / self.steps)) / 2
        # Rounding may leave the range by the last bit, which a loss with bounds on its temperatures would refuse.
        return min(max(tau, min(self.start, self.end)), max(self.start, self.end))


@dataclass(frozen=True)
class AdaptiveTemperature:
    """A temperature that rises with alignment (MACL): tau (1 + gain (mean s_i+ - target)), no gradient through it.

    Losses with in-batch negatives take it in place of the vector's temperature. The mean is over the batch, with
    `gather=True` of all processes.

    Args:
        tau: the temperature where the mean similarity of positives is `target`; default 0.1.
        gain: how much it rises, from 0; gain (1 + target) < 1, so that it stays above 0. Default 0.5.
        target: from 0 to 1, default 0.
    """

    tau: float = 0.1
    gain: float = 0.5
    target: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no temperature."""
        if not 0 < self.tau < math.inf:
            raise ValueError(f"tau must be a number > 0 (finite), got {self.tau}")
        if not (0 <= self.target <= 1 and self.gain >= 0 and self.gain * (1 + self.target) < 1):
            raise ValueError(
                f"gain >= 0, target from 0 to 1 and gain (1 + target) < 1 are needed, got {self.gain} and {self.target}"
            )

    @property
    def lowest(self) -> float:
        """Its value if all positives were opposite."""
        return self(-1.0)

    def __call__(self, alignment: Any) -> Any:
        """The temperature at a mean similarity of positives, a number or a tensor."""
        return self.tau * (1 + self.gain * (alignment - self.target))


def number_or_tied(tau_alpha: Any, tau_beta: Any) -> float | None:
    """tau_beta, or None (tied) if it is the adaptive temperature of tau_alpha; another adaptive one is an error."""
    if not isinstance(tau_beta, AdaptiveTemperature):
        return tau_beta
    if tau_beta != tau_alpha:
        raise ValueError(
            f"tau_beta must be a number, or the same AdaptiveTemperature as tau_alpha, got {tau_beta} and {tau_alpha}"
        )
    return None
