"""Copy several tensors to a device at once, without waiting for the copy."""

from collections.abc import Sequence

import torch
from torch import Tensor

_ALIGNMENT = 16  # bytes, so that every part can be viewed as any dtype


def copy_together(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """CPU tensors of any types and shapes -> the same on the device.

    Each copy costs a launch, and a copy from pageable memory makes CUDA wait for all earlier work. So all tensors are
    packed into one buffer, which is pinned for CUDA. For the CPU they are returned as they are.
    """
    if device.type == "cpu":
        return list(tensors)
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    places, total = [], 0
    for size in sizes:
        places.append(slice(total, total + size))
        total += -(-size // _ALIGNMENT) * _ALIGNMENT
    pinned = device.type == "cuda"
    packed = torch.empty(total, dtype=torch.uint8, pin_memory=pinned)
    for tensor, place in zip(tensors, places, strict=True):
        packed[place].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    there = packed.to(device, non_blocking=pinned)
    return [there[place].view(tensor.dtype).view(tensor.shape) for tensor, place in zip(tensors, places, strict=True)]
