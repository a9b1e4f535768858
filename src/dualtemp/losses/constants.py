"""Constants in operations on small tensors, converted to tensors once instead of in every operation.

An operation turns a Python number into a tensor and converts that to the type of the other operand. At 8 pairs this
takes longer than the operation itself: with numbers that are tensors already, a step takes a tenth less time. The bits
are the same.
"""

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

BITS = 1 / math.log(2)  # tiles are in base 2, because exp2 takes half the time of exp


def constant(number: float, like: Tensor) -> float | Tensor:
    """A number to compute with `like`: on the CPU a 0-d tensor, made once; elsewhere the number."""
    return _remembered(number, like.dtype) if can_remember(like) else number


def mean_of(values: Tensor) -> Tensor:
    """The mean of all values; on the CPU without the conversion of their number that torch's own mean needs."""
    return values.sum().div_(constant(values.numel(), values)) if values.is_cpu else values.mean()


def can_remember(like: Tensor) -> bool:
    """Whether a tensor made now, to compute with `like`, can serve later: one that belongs to a trace cannot."""
    return like.is_cpu and type(like) is Tensor and not torch.compiler.is_compiling()


@functools.lru_cache(maxsize=256)
def _remembered(number: float, dtype: torch.dtype) -> Tensor:
    return torch.tensor(number, dtype=dtype, device="cpu")


class Constants(NamedTuple):
    """The numbers of a product at two temperatures."""

    tau_alpha: float | Tensor
    minus_tau_alpha: float | Tensor
    tau_beta: float | Tensor
    scale: float | Tensor  # from similarities to exponents of 2 at tau_alpha
    unscale: float | Tensor  # and back
    to_beta: float | Tensor  # from exponents at tau_alpha to those at tau_beta
    shift_alpha: float | Tensor  # of s / tau_alpha, so that it is never above 0
    shift_beta: float | Tensor

    @classmethod
    def of(cls, alpha: float, beta: float, dtype: torch.dtype | None = None) -> "Constants":
        """The constants for these temperatures, as tensors if a type is given."""
        numbers = (alpha, -alpha, beta, BITS / alpha, alpha / BITS, alpha / beta, 1 / alpha, 1 / beta)
        return cls(*numbers) if dtype is None else cls(*torch.tensor(numbers, dtype=dtype, device="cpu").unbind())
