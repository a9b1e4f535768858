"""Backward functions that raise an error when they are differentiated again."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., Any]


def first_derivative_only(backward: Backward) -> Backward:
    """Make differentiating the result of an autograd function's `backward` an error.

    PyTorch's once_differentiable raises only if the incoming gradient requires grad, and otherwise silently treats the
    result as a constant. Autograd also skips nodes that do not lead to the tensors it is asked about; so the result is
    made to depend on the function's inputs through a saved input or output, or through `ctx.inputs` if none is saved.
    """

    @wraps(backward)
    def checked(ctx: Any, *gradients: Tensor) -> Any:
        if not torch.is_grad_enabled():  # it is, with create_graph=True
            return backward(ctx, *gradients)
        with torch.no_grad():
            results = backward(ctx, *gradients)
        alone = isinstance(results, Tensor)
        origins = (*gradients, *ctx.saved_tensors, *getattr(ctx, "inputs", ()))
        refused = [
            _Refused.apply(x.detach().requires_grad_(), *origins) if isinstance(x, Tensor) else x
            for x in ([results] if alone else results)
        ]
        return refused[0] if alone else tuple(refused)

    return checked


class _Refused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *origins: Tensor | None) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise RuntimeError("the losses of dualtemp have no second derivative: their gradient cannot be differentiated")
