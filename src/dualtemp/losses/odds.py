"""What a loss knows of its anchors, and what a weight makes of it."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor


class Odds(NamedTuple):
    """The log-odds of a step's anchors, (N,) or (A, N) for A directions, and what weights read beside them."""

    d: Tensor  # at the vector's temperature, with gradient
    beta: Tensor | None = None  # at tau_beta, detached; None: tied, the same as d
    log_negatives: float = 0.0  # log M
    tau: Tensor | None = None  # temperature of each anchor, if they differ
    slope: Tensor | None = None  # with tau: -tau dd/dtau = sum_j p^_ij (s_ij - s_i+) / tau, detached


class Weighed(NamedTuple):
    """Of each anchor, detached, all of the shape of d: the scalar w, the loss's value, and the logarithm of w."""

    scalar: Tensor
    value: Tensor
    log_scalar: Callable[[], Tensor]  # computed for those who log it alone


class OwnTemperatures(NamedTuple):
    """Temperature of each anchor, (A, N), detached, and a number that none of them is below."""

    tau: Tensor
    floor: float


class Weight(Protocol):
    """How anchors are weighed.

    Attributes:
        images: how many images it keeps numbers of, so that it needs their index; 0 for none.
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
