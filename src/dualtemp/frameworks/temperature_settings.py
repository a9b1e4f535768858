"""Settings that several frameworks share, so that each has one description. Needs no torch."""

from typing import Any, Literal

from pydantic import Field

from dualtemp.frameworks.protocol import FrameworkSettings
from dualtemp.temperatures import TAU_ALPHA, TAU_BETA

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


def predictor() -> Any:
    """MoCo v3's predictor."""
    return Field(False, description="A prediction MLP on the query's side, as in MoCo v3.")


def projector_width() -> Any:
    """Width of the projectors of VICReg and Barlow Twins."""
    return Field(512, ge=1, description="Width of the projector's three layers; 8192 as published.")


class HardnessWeight(FrameworkSettings):
    """Settings of BYOL and SimSiam: whether their anchors are weighed, as the paper's tab:othermethod asks."""

    hardness_aware: bool = Field(False, description="Weigh BYOL's or SimSiam's anchors by their hardness.")
    tau_weight: float = Field(TAU_ALPHA, gt=0, description="Temperature of that weight.")
