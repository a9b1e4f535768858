"""Backward functions that can be run but not differentiated, and say so."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., Any]


def first_derivative_only(backward: Backward) -> Backward:
    """Let `backward` of an autograd function give numbers; whoever differentiates them again gets an error.

    PyTorch's once_differentiable does so only if the incoming gradient is a function of something, and otherwise takes
    the result for a constant, in silence.
    """

    @wraps(backward)
    def checked(ctx: Any, *gradients: Tensor) -> Any:
        with torch.no_grad():
            results = backward(ctx, *gradients)
        if not torch.is_grad_enabled():  # it is, with create_graph=True
            return results
        alone = isinstance(results, Tensor)
        refused = [
            _Refused.apply(x.detach().requires_grad_()) if isinstance(x, Tensor) else x
            for x in ([results] if alone else results)
        ]
        return refused[0] if alone else tuple(refused)

    return checked


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise RuntimeError("the losses of dualtemp have no second derivative: their gradient cannot be differentiated")
