"""The interface between losses and weights: the log-odds of anchors, and the weights and values computed from them."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor


class Odds(NamedTuple):
    """The log-odds of a step's anchors, (N,) or (A, N) for A directions, and whatever else weights depend on."""

    d: Tensor  # at the vector's temperature, with gradient
    beta: Tensor | None = None  # at tau_beta, detached; None: tied, the same as d
    log_negatives: float | Tensor = 0.0  # log M
    tau: Tensor | None = None  # temperature of each anchor, if they differ
    slope: Tensor | None = None  # with tau: -tau dd/dtau = sum_j p^_ij (s_ij - s_i+) / tau, detached


class Weighed(NamedTuple):
    """For each anchor, detached and in the shape of d: the scalar w, the loss's value, and the logarithm of w."""

    scalar: Tensor
    value: Tensor
    log_scalar: Callable[[], Tensor]  # computed only for logging


class OwnTemperatures(NamedTuple):
    """The temperature of each anchor, (A, N), detached, and a lower bound of them all."""

    tau: Tensor
    floor: float


class Weight(Protocol):
    """How anchors are weighed.

    Attributes:
        images: number of images for which it keeps values, and so needs their index; 0 for none.
        has_tau_beta: whether it reads the log-odds at tau_beta.
    """

    images: int
    has_tau_beta: bool

    def temperatures(self, index: Tensor, directions: int, tau_alpha: float) -> OwnTemperatures | None:
        """Temperatures of the anchors; None: tau_alpha for all."""
        ...

    def weigh(self, odds: Odds, index: Tensor | None = None, tau_alpha: float = 1.0, gather: bool = False) -> Weighed:
        """Weights and values of the anchors."""
        ...
