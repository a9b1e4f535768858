"""View plans: the operations on each image of a batch, prepared on the CPU in the form that the device needs."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from dualtemp.data.augment.color import jitter_plan
from dualtemp.data.augment.one_copy import copy_together
from dualtemp.data.augment.parameters import Parameters


@dataclass(frozen=True)
class ViewPlan:
    """The draws for N images; the tensors of an operation that no image gets are empty.

    boxes: int64 (4, N), top, left, height, width of the crops; flipped, blurred, solarized: int64, the rows of these
    images; shuffles, factors, ends: see `color.jitter_plan`; gray: float32 (N,), 1 for images that lose their colors;
    sigma: float32, one per blurred image; kernel: width of the blur in pixels.
    """

    boxes: Tensor
    flipped: Tensor
    shuffles: Tensor
    factors: Tensor
    gray: Tensor
    blurred: Tensor
    sigma: Tensor
    solarized: Tensor
    ends: tuple[tuple[int, ...], ...]
    kernel: int

    def tensors(self) -> list[Tensor]:
        """All tensors, in the order of the fields."""
        return [getattr(self, name) for name in _TENSORS]

    def with_tensors(self, tensors: list[Tensor]) -> "ViewPlan":
        """The same plan with these tensors, such as copies on a device."""
        return replace(self, **dict(zip(_TENSORS, tensors, strict=True)))


_TENSORS = [each.name for each in fields(ViewPlan) if each.type is Tensor]


def view_plan(boxes: Tensor | None, parameters: Parameters, kernel: int) -> ViewPlan:
    """Make a plan, on the CPU; boxes: int64 (N, 4), None if the images are cropped already."""
    nothing = torch.empty(0, dtype=torch.int64)
    shuffles, factors, ends = nothing, torch.empty(0), ()
    if parameters.jittered.any():
        shuffles, factors, ends = jitter_plan(parameters.factors.to(torch.float32), parameters.order)
    blurred = parameters.blurred if kernel else torch.zeros_like(parameters.blurred)
    return ViewPlan(
        boxes=nothing if boxes is None else boxes.T,
        flipped=_which(parameters.flipped),
        shuffles=shuffles,
        factors=factors,
        gray=parameters.gray.to(torch.float32) if parameters.gray.any() else torch.empty(0),
        blurred=_which(blurred),
        sigma=parameters.sigma[blurred].to(torch.float32),
        solarized=_which(parameters.solarized),
        ends=ends,
        kernel=kernel,
    )


def plans_on_device(
    plans: list[ViewPlan], others: list[Tensor], device: torch.device
) -> tuple[list[ViewPlan], list[Tensor]]:
    """Copy plans, and other CPU tensors that a step needs with them, to a device, all in one copy."""
    there = copy_together([*(tensor for plan in plans for tensor in plan.tensors()), *others], device)
    moved = [plan.with_tensors(there[n * len(_TENSORS) : (n + 1) * len(_TENSORS)]) for n, plan in enumerate(plans)]
    return moved, there[len(plans) * len(_TENSORS) :]


def _which(drawn: Tensor) -> Tensor:
    return drawn.nonzero().squeeze(1)
