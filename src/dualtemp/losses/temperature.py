"""A temperature that is a number, or a 0-d tensor that learns."""

import math

import torch
from torch import Tensor

from dualtemp.losses.arguments import require_temperatures

Temperature = float | Tensor
LARGEST = 1e38  # temperatures above count as infinite: float32 may not hold them


def temperature_value(tau: Temperature) -> Temperature:
    """The number that a temperature holds; on a device, where reading it would wait, a detached tensor instead."""
    if not isinstance(tau, Tensor):
        return tau
    return tau.item() if tau.device.type == "cpu" else tau.detach()


def learned(tau: Temperature) -> Tensor | None:
    """The temperature if it requires a gradient, else None."""
    return tau if isinstance(tau, Tensor) and tau.requires_grad else None


def are_tied(alpha: Temperature, beta: Temperature) -> bool:
    """Whether two temperatures are the same; a tensor is the same only as itself."""
    if isinstance(alpha, Tensor) or isinstance(beta, Tensor):
        return alpha is beta
    return alpha == beta


def is_infinite(tau: Temperature) -> bool:
    """Whether every key weighs the same, to the last digit; a temperature that learns is finite."""
    return not isinstance(tau, Tensor) and tau > LARGEST


def require_temperature(tau: Temperature, name: str) -> None:
    """Refuse what is neither a finite number > 0 nor a floating 0-d tensor that holds one.

    On a device the value is not looked at, because that would wait for it: clamp a parameter there after each step.
    While a graph is made there is no value; it is looked at when the graph runs.
    """
    if not isinstance(tau, Tensor):
        require_temperatures(tau, name=name)
        return
    if tau.ndim != 0 or not tau.is_floating_point():
        raise ValueError(
            f"{name} must be a number or a floating-point 0-d tensor, got {tau.dtype} of shape {tuple(tau.shape)}"
        )
    if tau.device.type != "cpu" or torch.compiler.is_compiling():
        return
    value = tau.item()
    if not 0 < value < math.inf:
        hint = "; while it learns, clamp it, or learn its logarithm" if learned(tau) is not None else ""
        raise ValueError(f"{name} must be a number > 0 (finite), got {value}{hint}")
