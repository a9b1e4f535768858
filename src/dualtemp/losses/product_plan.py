"""How the product of anchors and keys is walked over: which tiles, what is collected, what is kept for backward."""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.losses.constants import Constants
from dualtemp.losses.exclusion import Exclusion
from dualtemp.losses.temperature import Temperature, is_infinite, learned, temperature_value

# A tile that stays in a core's cache; accelerators want fewer, larger ones.
TILE_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 24, "mps": 1 << 22}
# Up to here (64 MiB in float32) the tiles are kept for backward: not making them again saves a quarter of the time.
KEPT_ELEMENTS = 1 << 24


class Walk(NamedTuple):
    """The decisions about a walk over the product that do not need the temperature's value."""

    symmetric: bool  # keys are the anchors: rows are columns too, and half of the matrix is enough
    anchors_alone: bool  # only anchors want a gradient, so that the vector component is all that backward needs
    may_keep: bool  # the tiles are few enough to be kept for backward

    @classmethod
    def of(
        cls, a: Tensor, b: Tensor, tau: Temperature, both_directions: bool, vector: bool, excluded: Exclusion | None
    ) -> "Walk":
        """The walk over the product of `a` and `b`, by the arguments of `log_sum_exp`."""
        # Columns as anchors, the vector component and a matrix of excluded keys want the whole product.
        symmetric = b is a and not (both_directions or vector or (excluded is not None and excluded.mask is not None))
        return cls.for_gradients(gradients_wanted(a, b, tau), a.shape[0] * b.shape[0], both_directions, symmetric)

    @classmethod
    def for_gradients(
        cls, wanted: tuple[bool, bool, bool], elements: int, both_directions: bool, symmetric: bool
    ) -> "Walk":
        """The walk over a product of so many elements, by what `gradients_wanted` says."""
        backward = any(wanted)
        anchors_alone = backward and not (wanted[1] or both_directions or symmetric)
        return cls(symmetric, anchors_alone, backward and not anchors_alone and elements <= KEPT_ELEMENTS)


def gradients_wanted(a: Tensor, b: Tensor, tau: Temperature) -> tuple[bool, bool, bool]:
    """Whether anchors, keys and temperature will receive a gradient."""
    if not torch.is_grad_enabled():
        return False, False, False
    return a.requires_grad, b.requires_grad, learned(tau) is not None


def make_plan(
    a: Tensor,
    b: Tensor,
    walk: Walk,
    tau_alpha: Temperature,
    tau_beta: Temperature | None,
    *,
    own: int | None,
    both_directions: bool,
    vector: bool = False,
    excluded: Exclusion | None = None,
) -> "Plan":
    """How `log_sum_exp` walks over the product, by its arguments."""
    value = temperature_value(tau_alpha)
    kept = walk.may_keep and fixed_shift(value, a.dtype)
    return Plan(
        value,
        value if tau_beta is None or tau_beta is tau_alpha else temperature_value(tau_beta),
        own,
        both_directions,
        walk.symmetric,
        vector=vector or walk.anchors_alone,
        kept=kept,
        tiles=make_tiles(a.shape[0], b.shape[0], a.device.type, walk.symmetric, kept),
        excluded=excluded if excluded is not None and excluded.any() else None,
    )


@functools.lru_cache(maxsize=64)
def plan_of_pairs(
    N: int,
    device: torch.device,
    dtype: torch.dtype,
    wanted: tuple[bool, bool, bool],
    tau_alpha: float,
    tau_beta: float,
    both_directions: bool,
    one_view: bool,
    normalize: bool,
    with_constants: bool,
) -> "Plan | None":
    """The plan for N pairs if their product is one tile that backward need not compute again; otherwise None.

    Remembered, because the steps of a run differ in it only while a temperature moves.

    Args:
        N: pairs.
        device: of the embeddings.
        dtype: of the embeddings.
        wanted: the result of `gradients_wanted` for them.
        tau_alpha: temperature of the vector.
        tau_beta: temperature of the scalar.
        both_directions: keys are anchors too.
        one_view: keys are the very tensor that the anchors are.
        normalize: they are normalized first.
        with_constants: keep the constants of these temperatures as tensors.
    """
    walk = Walk.for_gradients(wanted, N * N, both_directions, one_view and not both_directions)
    if normalize and walk.anchors_alone:  # as in the general way, where keys that were normalized want a gradient
        walk = Walk(False, False, N * N <= KEPT_ELEMENTS)
    kept = walk.may_keep and fixed_shift(tau_alpha, dtype)
    tiles = make_tiles(N, N, device.type, walk.symmetric, kept)
    plan = Plan(tau_alpha, tau_beta, 0, both_directions, walk.symmetric, walk.anchors_alone, kept, tiles)
    if with_constants:
        plan.constants = Constants.of(tau_alpha, tau_beta, dtype)
    return plan if plan.is_one_tile(dtype) and (plan.kept or plan.vector) else None


Tile = tuple[slice, slice]  # of rows and of columns


def make_tiles(N: int, K: int, device: str, symmetric: bool, kept: bool) -> list[Tile]:
    """Ranges that cover the N x K matrix, the largest first; if it is symmetric and not kept, its upper half."""
    elements = TILE_ELEMENTS.get(device, TILE_ELEMENTS["cuda"])
    if symmetric and not kept:
        width = height = min(N, math.isqrt(elements))
    else:
        height = min(N, math.isqrt(elements) // 2)
        width = min(K, elements // height)
    return [
        (slice(top, min(top + height, N)), slice(left, min(left + width, K)))
        for top in range(0, N, height)
        for left in range(top if symmetric and not kept else 0, K, width)
    ]


@dataclass(slots=True)
class Plan:
    """How the product is walked over, and what is collected on the way."""

    tau_alpha: Temperature
    tau_beta: Temperature
    own: int | None
    both_directions: bool
    symmetric: bool
    vector: bool
    kept: bool  # exp((s - 1) / tau_alpha) is kept for backward
    tiles: list[Tile]
    excluded: Exclusion | None = None
    constants: Constants | None = None  # as tensors, if the plan is remembered

    def numbers(self) -> Constants:
        """The constants of the temperatures, which are numbers."""
        return self.constants or Constants.of(float(self.tau_alpha), float(self.tau_beta))

    def own_keys(self, tile: Tensor, rows: slice, keys: slice) -> tuple[Tensor, slice]:
        """The entries of a tile that belong to anchors' own keys, and these anchors."""
        offset = rows.start + (self.own or 0) - keys.start
        entries = tile.diagonal(offset)
        first = rows.start + max(-offset, 0)
        return entries, slice(first, first + entries.shape[0])

    def is_one_tile(self, dtype: torch.dtype) -> bool:
        """Whether the product is one tile of keys that all exist, walked over without looking for a maximum."""
        if len(self.tiles) > 1 or self.excluded is not None or is_infinite(self.tau_alpha):
            return False
        return fixed_shift(self.tau_alpha, dtype) and fixed_shift(self.tau_beta, dtype)

    def equal_keys(self, a: Tensor, b: Tensor) -> Tensor:
        """Log-sum-exp at an infinite temperature, the logarithm of the number of negatives."""
        if self.excluded is not None:
            tiles = make_tiles(a.shape[0], b.shape[0], a.device.type, symmetric=False, kept=False)
            counts = self.excluded.count(tiles, (a.shape[0], b.shape[0]), self.own)
            return torch.stack(counts[: 1 + self.both_directions]).to(a.dtype).log_()
        negatives = b.shape[0] - (self.own is not None)
        return a.new_full((1 + self.both_directions, a.shape[0]), math.log(negatives) if negatives else -math.inf)


def fixed_shift(tau: Temperature, dtype: torch.dtype) -> bool:
    """Whether exp((s - 1) / tau), s in [-1, 1], stays well within the normal numbers: no maximum need be sought."""
    return not isinstance(tau, Tensor) and 2 / tau < -0.9 * math.log(torch.finfo(dtype).tiny)
