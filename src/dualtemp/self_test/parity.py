"""Every loss on a device in float32 against the CPU in float64: value of each anchor, and gradient."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp import losses


class Case(NamedTuple):
    """A loss of q, k (N, D) and keys (K, D), per anchor if it has them; `tau` is its lowest temperature."""

    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    tau: float


def _classes(q: Tensor) -> Tensor:
    return torch.arange(len(q), device=q.device) % q.shape[1]


# By the function's name, and what is special about the call.
CASES: dict[str, Case] = {
    "dual_temperature": Case(lambda q, k, _: losses.dual_temperature(q, k, reduction="none"), 0.1),
    "dual_temperature, one direction, detached keys": Case(
        lambda q, k, _: losses.dual_temperature(q, k.detach(), both_directions=False, reduction="none"), 0.1
    ),
    "dual_temperature, both views": Case(
        lambda q, k, _: losses.dual_temperature(q, k, both_views=True, reduction="none"), 0.1
    ),
    "dual_temperature, tau_beta inf": Case(
        lambda q, k, _: losses.dual_temperature(q, k, 0.1, math.inf, reduction="none"), 0.1
    ),
    "dual_temperature, tau .01": Case(
        lambda q, k, _: losses.dual_temperature(q, k, 0.01, 0.02, reduction="none"), 0.01
    ),
    "nt_xent": Case(lambda q, k, _: losses.nt_xent(q, k, reduction="none"), 0.1),
    "info_nce": Case(lambda q, k, keys: losses.info_nce(q, k, keys, reduction="none"), 0.1),
    "info_nce, detached keys": Case(
        lambda q, k, keys: losses.info_nce(q, k.detach(), keys.detach(), reduction="none"), 0.1
    ),
    "decomposed": Case(lambda q, k, keys: losses.decomposed(q, k, keys, keys[::2], 0.1, 1.0, reduction="none"), 0.1),
    "equal_anchors": Case(lambda q, k, keys: losses.equal_anchors(q, k, keys, reduction="none"), 0.1),
    "simple": Case(lambda q, k, keys: losses.simple(q, k, keys, reduction="none"), 1.0),
    "negative_cosine": Case(lambda q, k, _: losses.negative_cosine(q, k, reduction="none"), 1.0),
    "in_batch_weight": Case(
        lambda q, k, _: losses.negative_cosine(q, k, losses.in_batch_weight(q, k), reduction="none"), 0.1
    ),
    "two_towers": Case(lambda q, k, _: losses.two_towers(q, k, 0.1, 1.0, reduction="none"), 0.1),
    "two_towers, classes are no negatives": Case(
        lambda q, k, _: losses.two_towers(q, k, 0.1, labels=_classes(q), reduction="none"), 0.1
    ),
    "supervised_contrastive": Case(
        lambda q, k, _: losses.supervised_contrastive(q, k, _classes(q), reduction="none"), 0.1
    ),
    "vicreg": Case(lambda q, k, _: losses.vicreg(q, k)[None], 1.0),
    "barlow_twins": Case(lambda q, k, _: losses.barlow_twins(q, k)[None], 1.0),
    "cross_entropy": Case(lambda q, k, _: losses.cross_entropy(q, _classes(q), 1.0, 2.0, reduction="none"), 1.0),
}


class Parity(NamedTuple):
    """Largest differences from float64, each divided by what rounding in float32 may come to: 1 is the limit."""

    value: float
    gradient: float

    @property
    def passed(self) -> bool:
        """Whether both are numbers within the limit."""
        return self.value <= 1 and self.gradient <= 1


def compare(case: Case, device: torch.device, anchors: int, keys: int, width: int) -> Parity:
    """Compute a case on the device and, from the same numbers, in float64 on the CPU."""
    g = torch.Generator().manual_seed(0)
    drawn = [torch.randn(n, width, generator=g) for n in (anchors, anchors, keys)]
    drawn[1] += drawn[0]  # positives that are alike, as in training
    exact = [x.double().requires_grad_() for x in drawn]
    there = [x.to(device).requires_grad_() for x in drawn]
    value, right = case.loss(*there), case.loss(*exact)
    weights = torch.linspace(0.5, 2, len(right), dtype=torch.float64)
    value.backward(weights.to(value))
    right.backward(weights)
    # A similarity is off by some eps, its exponential by 1 / tau times that, and a gradient by as much of its size.
    limit = 64 * torch.finfo(torch.float32).eps * (1 + 1 / case.tau)
    off = (value.detach().cpu().double() - right.detach()).abs() / (limit * (1 + right.detach().abs()))
    gradients = [_relative(x.grad, y.grad) / limit for x, y in zip(there, exact, strict=True)]
    return Parity(off.max().item(), torch.tensor(gradients).max().item())  # which a nan is not lost in


def _relative(found: Tensor | None, right: Tensor | None) -> float:
    if found is None or right is None:
        return 0.0 if found is right else math.inf
    return ((found.cpu().double() - right).abs().max() / right.abs().max().clamp_min(1e-30)).item()
