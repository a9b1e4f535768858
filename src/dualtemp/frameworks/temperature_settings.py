"""Settings that several frameworks share, so that each has one description. Needs no torch."""

import math
from typing import Any, ClassVar, Literal

from pydantic import Field

from dualtemp.frameworks.protocol import W_OF_TAU_BETA, AnchorWeight, FrameworkSettings
from dualtemp.temperatures import LEAST_TAU, TAU_ALPHA, TAU_BETA

Temperature = float | Literal["tied"]
WITHOUT_NEGATIVES = (
    "Try a lower --lr or --warmup-epochs; without negatives, the predictor alone holds the features apart."
)
TAU_BETA_VALUES = "a number above 0, inf, or 'tied'"


def tau_alpha(default: float = TAU_ALPHA) -> Any:
    """The temperature of the vector."""
    return Field(default, gt=0, description="Temperature of the vector (intra-anchor).")


def tau_beta(default: Temperature = TAU_BETA) -> Any:
    """The temperature of the scalar."""
    return Field(default, description="Temperature of the scalar (inter-anchor); inf, or tied.")


def key_momentum() -> Any:
    """How slowly the key encoder follows."""
    return Field(0.99, ge=0, le=1, description="Of the key encoder.")


def symmetric() -> Any:
    """The + variants."""
    return Field(False, description="The + variant: each view is query once and key once.")


def both_views() -> Any:
    """Negatives of the anchor's own view."""
    return Field(False, description="Negatives from the anchor's own view too.")


def match_step() -> Any:
    """Steps as large as with one temperature, at the weights of two."""
    return Field(
        False,
        description="Scale the loss by mean W(tau_alpha) / mean W(tau_beta): the steps of one temperature.",
    )


def predictor() -> Any:
    """MoCo v3's predictor."""
    return Field(False, description="A prediction MLP on the query's side, as in MoCo v3.")


def projector_batch_norm() -> Any:
    """A projector with batch norm for the contrastive frameworks."""
    return Field(False, description="A wider projector with batch norm inside: short trainings get further.")


def projector_width(default: int = 512) -> Any:
    """Width of the projectors of VICReg, Barlow Twins and SimSiam."""
    published = "published: 2048 for simsiam, 8192 for the others"
    return Field(default, ge=1, le=10**6, description=f"Width of the projector's three layers ({published}).")


class OneTemperature(FrameworkSettings):
    """The temperature of a loss that has only one."""

    tau_alpha: float = tau_alpha()


class TwoTemperatures(OneTemperature):
    """The temperatures of vector and scalar."""

    tau_beta: Temperature = tau_beta()
    tau_beta_end: float | None = Field(
        default=None, gt=0, description="Where the schedule takes tau_beta; nowhere by default."
    )


# Settings that only some weights, or schedules, have.
OF_WEIGHT: dict[str, tuple[str, ...]] = {
    "sigmoid": ("tau_beta", "tau_beta_end", "match_step"),
    "equal": (),
    "memory": ("gamma",),
    "per_image": ("gamma", "rho", "tau_min", "tau_max", "tau_lr", "tau_momentum"),
}
OF_SCHEDULE: dict[str, tuple[str, ...]] = {
    "constant": (),
    "cosine": ("tau_alpha_end", "tau_beta_end", "temperature_period"),
    "linear": ("tau_alpha_end", "tau_beta_end"),
    "adaptive": ("temperature_gain", "temperature_target"),
}
KEPT_PER_IMAGE = ("memory", "per_image")
# How the run page reads W: only sigmoid weights are probabilities, only averaged ones are evened out by gamma.
READ_AS = {
    "sigmoid": W_OF_TAU_BETA,
    "equal": AnchorWeight("", is_hardness=False),
    **dict.fromkeys(KEPT_PER_IMAGE, AnchorWeight("gamma", is_hardness=False)),
}


class AnchorSettings(FrameworkSettings):
    """Settings of a framework with anchors: how they are weighed, and how temperatures change during training.

    A framework's `Settings` derive from this and from `OneTemperature` or `TwoTemperatures`.
    """

    weight: Literal["sigmoid", "equal", "memory", "per_image"] = Field(
        default="sigmoid",
        description="Of an anchor: by tau_beta, all 1 (DCL), by its image's average (SogCLR), or iSogCLR's.",
    )
    gamma: float = Field(
        default=0.9, gt=0, le=1, description="Share of a step in an image's average (memory, per_image)."
    )
    rho: float = Field(default=0.3, ge=0, description="Of per_image: the larger, the lower the temperatures.")
    tau_min: float = Field(default=0.05, gt=0, description="Lowest temperature of an image (per_image).")
    tau_max: float = Field(default=0.7, gt=0, description="Highest temperature of an image (per_image).")
    tau_lr: float = Field(default=0.01, ge=0, description="Learning rate of the images' temperatures (per_image).")
    tau_momentum: float = Field(default=0.1, ge=0, lt=1, description="Of these temperatures' moves (per_image).")
    temperature_schedule: Literal["constant", "cosine", "linear", "adaptive"] = Field(
        default="constant", description="Of temperatures: to their _end and back, to it, or with the positives (MACL)."
    )
    tau_alpha_end: float | None = Field(
        default=None, gt=0, description="Where the schedule takes tau_alpha; nowhere by default."
    )
    temperature_period: float | None = Field(
        default=None, gt=0, le=10**9, description="Epochs of a cosine there and back; those of the run by default."
    )
    temperature_gain: float = Field(
        default=0.5, ge=0, description="How much tau_alpha rises with the positives (adaptive)."
    )
    temperature_target: float = Field(default=0.0, ge=0, le=1, description="Their mean similarity that it starts from.")
    added_later: ClassVar[frozenset[str]] = frozenset(
        {"weight", "temperature_schedule"}.union(*OF_WEIGHT.values(), *OF_SCHEDULE.values()) - {"tau_beta"}
    )

    def contradiction(self) -> str:
        """An error for a schedule without an end, and for temperatures out of bounds."""
        known: Any = self
        alpha, beta = known.tau_alpha, getattr(self, "tau_beta", "tied")
        ends = {name: getattr(self, name, None) for name in ("tau_alpha_end", "tau_beta_end")}
        if "tau_alpha_end" in OF_SCHEDULE[self.temperature_schedule]:
            if not any(ends.values()):
                return f"temperature_schedule {self.temperature_schedule!r} needs tau_alpha_end or tau_beta_end"
            if ends["tau_beta_end"] and (beta == "tied" or math.isinf(float(beta))):
                return f"tau_beta_end needs a finite tau_beta to start from, not {beta}"
        if self.temperature_schedule == "adaptive" and self.temperature_gain * (1 + self.temperature_target) >= 1:
            return "temperature_gain x (1 + temperature_target) must be below 1: the temperature would reach 0"
        if self.temperature_schedule == "adaptive":
            lowest = alpha * (1 - self.temperature_gain * (1 + self.temperature_target))
            if lowest < LEAST_TAU:
                return f"tau_alpha could fall to {lowest:.3g}, below {LEAST_TAU:g}: give a lower temperature_gain"
        if self.weight == "per_image":
            if self.temperature_schedule == "adaptive":
                return "weight 'per_image' has temperatures of its own: leave temperature_schedule 'adaptive' out"
            outside = [tau for tau in (alpha, ends["tau_alpha_end"]) if tau and not self.tau_min <= tau <= self.tau_max]
            if outside:
                return f"tau_alpha {outside[0]:g} is not from tau_min {self.tau_min:g} to tau_max {self.tau_max:g}"
        return ""

    def without_effect(self) -> dict[str, str]:
        """The settings that belong to another weight or to another schedule."""
        idle: dict[str, str] = {}
        for setting, table in (("weight", OF_WEIGHT), ("temperature_schedule", OF_SCHEDULE)):
            chosen = getattr(self, setting)
            for name in sorted(set().union(*table.values()) - set(table[chosen])):
                owners = " or ".join(repr(other) for other, names in table.items() if name in names)
                if name in type(self).model_fields:
                    idle.setdefault(name, f"does not apply to {setting} {chosen!r}: it needs {setting} {owners}")
        return idle


TIED_TO_ADAPTIVE = 2  # since this version, a tied tau_beta follows an adaptive tau_alpha


class InBatchVersions:
    """Versions of the frameworks whose losses take tau_beta with in-batch negatives.

    In version 1, a tau_beta tied to an adaptive tau_alpha stayed at the start of tau_alpha. Other settings are not
    affected, and their results keep their keys.
    """

    version = TIED_TO_ADAPTIVE

    @classmethod
    def version_of(cls, settings: Any) -> int:
        """2 if tau_beta is in effect and tied to an adaptive tau_alpha, else 1."""
        moves = settings.temperature_schedule == "adaptive" and "tau_beta" not in settings.without_effect()
        return TIED_TO_ADAPTIVE if moves and settings.tau_beta == "tied" else 1


class HardnessWeight(FrameworkSettings):
    """Settings of BYOL and SimSiam: whether their anchors are weighed, as in the paper's tab:othermethod."""

    hardness_aware: bool = Field(False, description="Weigh BYOL's or SimSiam's anchors by their hardness.")
    tau_weight: float = Field(TAU_ALPHA, gt=0, description="Temperature of that weight.")
