"""Multinomial logistic regression in NumPy: the page's probe, refitted after every few labels.

It minimizes the same objective as `evaluation.probe.logistic_regression`, which needs torch and its optimizers: loading
them takes seconds at first use, longer than users wait between two labels.
"""

from collections.abc import Callable

import numpy as np

HISTORY = 20  # newest steps from which the curvature is estimated
SLOPE = 1e-4  # share of the expected decrease that a step must achieve (Armijo)
LEAST_STEP = 1e-10
Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


def softmax_regression(
    features: np.ndarray, labels: np.ndarray, classes: int, penalty: float, *, iterations: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """Weight (C, F) and bias (C,) that minimize mean cross entropy + penalty / 2 * |weight|^2, by L-BFGS.

    Args:
        features: float32 (N, F), roughly standardized.
        labels: int (N,), from 0.
        classes: C.
        penalty: on the weight, not on the bias.
        iterations: at most.
    """
    count, width = features.shape
    at = np.arange(count), labels

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = flat[:-classes].reshape(width, classes), flat[-classes:]
        logits = (features @ weight.astype(np.float32)).astype(np.float64) + bias  # (N, C)
        logits -= logits.max(1, keepdims=True)
        error = np.exp(logits)
        total = error.sum(1, keepdims=True)
        loss = float((np.log(total[:, 0]) - logits[at]).mean() + penalty / 2 * np.square(weight).sum())
        error /= total
        error[at] -= 1
        error /= count  # d loss / d logits
        slope = features.T @ error.astype(np.float32) + penalty * weight
        return loss, np.concatenate([slope.ravel(), error.sum(0)])

    flat = _minimum(objective, np.zeros((width + 1) * classes), iterations)
    return flat[:-classes].reshape(width, classes).T.astype(np.float32), flat[-classes:].astype(np.float32)


def _minimum(objective: Objective, x: np.ndarray, iterations: int, tolerance: float = 1e-5) -> np.ndarray:
    """Minimize a smooth convex function, starting at x, until no partial derivative exceeds the tolerance."""
    value, gradient = objective(x)
    steps: list[tuple[np.ndarray, np.ndarray, float]] = []  # change of x, change of the gradient, 1 / their product
    for _ in range(iterations):
        if np.abs(gradient).max() <= tolerance:
            break
        direction = _direction(gradient, steps)
        expected = float(direction @ gradient)
        size = 1.0 if steps else min(1.0, 1 / float(np.abs(gradient).sum()))
        while True:
            there, slope_there = objective(x + size * direction)
            if there <= value + SLOPE * size * expected:
                break
            # The minimum of the parabola through the known values, within bounds.
            size *= float(np.clip(-expected * size / (2 * (there - value - expected * size)), 0.1, 0.5))
            if size < LEAST_STEP:  # no decrease left beyond rounding
                return x
        moved, changed = size * direction, slope_there - gradient
        x, value, gradient = x + moved, there, slope_there
        product = float(moved @ changed)
        if product > 1e-12 * float(changed @ changed):
            steps = [*steps[-HISTORY + 1 :], (moved, changed, 1 / product)]
    return x


def _direction(gradient: np.ndarray, steps: list[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    """Minus the inverse Hessian, estimated from the newest steps, times the gradient (the two loops of L-BFGS)."""
    found, shares = -gradient, []
    for moved, changed, inverse in reversed(steps):
        shares.append(inverse * float(moved @ found))
        found = found - shares[-1] * changed
    if steps:
        _, changed, inverse = steps[-1]
        found = found / (inverse * float(changed @ changed))
    for (moved, changed, inverse), share in zip(steps, reversed(shares), strict=True):
        found = found + (share - inverse * float(changed @ found)) * moved
    return found
