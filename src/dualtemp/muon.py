"""Muon for weights of any number of dimensions; torch's own takes only two-dimensional matrices."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from dualtemp.each_parameter import step_each

# Coefficients of x <- a x + (b x x' + c (x x')^2) x, which moves all singular values near 1: Jordan et al. 2024.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_BETAS, _SMALL = (0.9, 0.999), 1e-8  # of Adam
_RMS = 0.2  # root mean square of a step divided by the rate, as is typical of Adam


class Muon(Optimizer):
    """Orthogonalized momentum, a step of equal length in all directions, for matrices; Adam for biases and scales.

    A matrix moves by the orthogonal matrix nearest to its momentum (Jordan et al. 2024), scaled to the length of
    Adam's steps (Liu et al. 2025), so that one rate suits matrices and vectors. A convolution counts as a matrix with a
    row per output channel. Weight decay is decoupled, as in AdamW.

    Args:
        params: parameters or groups; vectors, and groups with adapt=False, are left to Adam.
        lr: learning rate, of the size usual with AdamW.
        momentum: Nesterov momentum of matrices, default 0.9.
        weight_decay: default 0.
        iterations: number of steps towards the orthogonal matrix, default 5.
    """

    def __init__(
        self, params: Any, lr: float = 0.0, momentum: float = 0.9, weight_decay: float = 0.0, iterations: int = 5
    ) -> None:
        usual = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "iterations": iterations, "adapt": True}
        super().__init__(params, usual)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore
        """Update the parameters once; returns the loss if a `closure` computes it and its gradients."""
        return step_each(self, self._move, closure)

    def _move(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        direction = self._by_momentum if group["adapt"] and p.ndim > 1 else self._by_adam
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(direction(p, gradient, group), alpha=-group["lr"])

    def _by_momentum(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[p]
        if not state:
            state["momentum"] = torch.zeros_like(p)
        momentum = state["momentum"].mul_(group["momentum"]).add_(gradient)
        ahead = gradient.add(momentum, alpha=group["momentum"])
        rows = ahead.movedim(1, -1)  # the memory order of channels_last, so that flattening copies nothing
        matrix = orthogonalize(rows.flatten(1), group["iterations"])
        return matrix.mul_(_RMS * max(matrix.shape) ** 0.5).view(rows.shape).movedim(-1, 1)

    def _by_adam(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[p]
        if not state:
            state.update(step=torch.zeros(()), mean=torch.zeros_like(p), square=torch.zeros_like(p))
        step = float(state["step"].add_(1))
        mean = state["mean"].lerp_(gradient, 1 - _BETAS[0]) / (1 - _BETAS[0] ** step)
        square = state["square"].lerp_(gradient.square(), 1 - _BETAS[1]) / (1 - _BETAS[1] ** step)
        return mean / (square.sqrt_() + _SMALL)


def orthogonalize(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Return about U V' for a matrix U S V' (R, C): singular values near 1, unless they are far below the largest."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / wide.norm().clamp(min=1e-7)
    for _ in range(iterations):
        square = x @ x.T
        x = _A * x + torch.addmm(square, square, square, beta=_B, alpha=_C) @ x
    return x if wide is matrix else x.T
