"""Checks of the losses' arguments, each with a clear one-line error."""

import math
from typing import Literal

from torch import Tensor

from dualtemp.temperatures import LEAST_TAU, MOST_TAU

Reduction = Literal["mean", "none"]
Gather = bool | Literal["ring"]


def require_temperatures(tau_alpha: float, tau_beta: float | None = None, name: str = "tau_alpha") -> None:
    """Refuse temperatures that are not positive numbers; only the scalar's, tau_beta, may be inf, or None: tied."""
    _require_temperature(tau_alpha, name, "finite")
    if tau_beta is not None:
        require_scalar_temperature(tau_beta)


def require_scalar_temperature(tau: float, name: str = "tau_beta") -> None:
    """Refuse a temperature of the scalar that is neither a positive number nor inf."""
    _require_temperature(tau, name, "inf allowed")


def require_reduction(reduction: str) -> None:
    """Refuse reductions other than "mean" and "none"."""
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction must be 'mean' or 'none', got {reduction!r}")


def require_gather(gather: object) -> None:
    """Refuse values other than False, True and "ring"."""
    if not isinstance(gather, bool) and gather != "ring":
        raise ValueError(f"gather must be False, True or 'ring', got {gather!r}")


def require_gather_without_ring(gather: object) -> None:
    """Refuse values other than False and True, for losses that have no ring."""
    if not isinstance(gather, bool):
        raise ValueError(f"gather must be False or True for this loss, got {gather!r}")


def require_weights(**weights: float) -> None:
    """Refuse weights of a loss's terms that are not finite numbers of at least 0."""
    for name, weight in weights.items():
        if not 0 <= float(weight) < math.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, got {float(weight)}")


def require_pairs(q: Tensor, k: Tensor, names: tuple[str, str] = ("q", "k")) -> None:
    """Refuse what is not two equal floating (N, D) matrices on one device."""
    for i, x in enumerate((q, k)):
        if x.ndim != 2 or not x.is_floating_point():
            raise ValueError(f"{names[i]} must be a floating-point (N, D) matrix, got {_described(x)}")
    if q.shape != k.shape:
        raise ValueError(f"{names[0]} and {names[1]} must have the same shape, got {_shapes(q, k)}")
    _require_one_device(q, k)
    if q.shape[0] == 0:
        raise ValueError(f"{names[0]} holds no anchors: got shape {_shapes(q)}")


def require_keys(q: Tensor, keys: Tensor, name: str) -> None:
    """Refuse negatives that are not at least one floating (K, D) row on the anchors' device."""
    if keys.ndim != 2 or not keys.is_floating_point() or keys.shape[1] != q.shape[1]:
        raise ValueError(f"{name} must be a floating-point (K, {q.shape[1]}) matrix, got {_described(keys)}")
    _require_one_device(q, keys)
    if keys.shape[0] == 0:
        raise ValueError(f"no negatives: {name} is empty, at least one key is needed")


def require_in_batch_negatives(anchors: int) -> None:
    """Refuse a global batch of one pair, which has no negatives."""
    if anchors < 2:
        raise ValueError("no negatives: the batch holds one pair, at least two are needed")


def _require_temperature(tau: object, name: str, limit: str) -> None:
    if isinstance(tau, Tensor) and tau.requires_grad:
        raise ValueError(f"{name} must be a number, got a tensor that requires gradient: it would not be learned")
    try:
        value = float(+tau)  # pyright: ignore[reportOperatorIssue]
    except (TypeError, ValueError, RuntimeError):  # a word, even if it is "0.1"; None, several numbers
        raise ValueError(f"{name} must be a number > 0 ({limit}), got {tau!r}") from None
    if not value > 0 or isinstance(tau, bool) or (limit == "finite" and value == math.inf):
        raise ValueError(f"{name} must be a number > 0 ({limit}), got {tau if isinstance(tau, bool) else value}")
    if value < LEAST_TAU or (limit == "finite" and value > MOST_TAU):
        raise ValueError(f"{name} must be from {LEAST_TAU:g} to {MOST_TAU:g}, got {value}")


def _require_one_device(x: Tensor, y: Tensor) -> None:
    if x.device != y.device:
        raise ValueError(
            f"all embeddings must be on one device, got {' and '.join(sorted(map(str, (x.device, y.device))))}"
        )


def _shapes(*tensors: Tensor) -> str:
    return " and ".join(str(tuple(x.shape)) for x in tensors)


def _described(x: Tensor) -> str:
    return f"{x.dtype} of shape {_shapes(x)}"
