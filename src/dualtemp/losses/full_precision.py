"""What a loss keeps from step to step stays at least float32: half precision would lose its small changes."""

from collections.abc import Callable

import torch
from torch import Tensor


def at_least_float32() -> torch.dtype:
    """The default dtype, unless that is a half precision."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def without_half(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """For `Module._apply`: `fn`, but a tensor that it would make half precision only changes its device."""

    def moved(tensor: Tensor) -> Tensor:
        new = fn(tensor)
        return tensor.to(new.device) if new.dtype in (torch.float16, torch.bfloat16) else new

    return moved
