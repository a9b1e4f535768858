"""The LARS optimizer, which torch lacks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from dualtemp.each_parameter import step_each


class LARS(Optimizer):
    """SGD whose rate for each weight matrix is scaled by |w| / |gradient| (You et al. 2017).

    Groups with adapt=False (biases, scales) are updated as in SGD.

    Args:
        params: parameters or groups.
        lr: learning rate.
        momentum: default 0.9.
        trust: factor of |w| / |g| in a matrix's rate, default 0.001.
    """

    def __init__(self, params: Any, lr: float = 0.0, momentum: float = 0.9, trust: float = 0.001) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "trust": trust, "weight_decay": 0.0, "adapt": True})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore
        """Update the parameters once; returns the loss if a `closure` computes it and its gradients."""
        return step_each(self, self._move, closure)

    def _move(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        gradient = gradient.add(p, alpha=group["weight_decay"])
        if group["adapt"]:
            weight_norm, gradient_norm = p.norm(), gradient.norm()
            scale = group["trust"] * weight_norm / gradient_norm
            gradient = gradient * torch.where((weight_norm > 0) & (gradient_norm > 0), scale, 1.0)
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        state["momentum"].mul_(group["momentum"]).add_(gradient)
        p.add_(state["momentum"], alpha=-group["lr"])
