"""The step of an optimizer that moves one parameter after the other."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


@torch.no_grad()
def step_each(
    optimizer: Optimizer, move: Callable[[Tensor, Tensor, dict[str, Any]], None], closure: Callable[[], Any] | None
) -> Any:
    """Call `move(parameter, gradient, group)` for each parameter that has a gradient; returns what `closure` returned.

    closure: if given, is called first and computes the loss and its gradients.
    """
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                move(p, p.grad, group)
    return loss
