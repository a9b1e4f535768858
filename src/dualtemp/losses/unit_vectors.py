"""Unit vectors with their gradient, and products that are not rounded."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dualtemp.first_derivative import first_derivative_only


def unit(*embeddings: Tensor, skip: bool = False) -> list[Tensor]:
    """Normalize embeddings (..., D) to length 1, in float32 or, if any of them is float64, in float64; with gradient.

    skip: they are unit vectors already, and are only converted.
    """
    dtype = torch.float64 if any(x.dtype == torch.float64 for x in embeddings) else torch.float32
    converted = [x.to(dtype) for x in embeddings]
    if skip:
        return converted
    if torch.compiler.is_compiling():
        return [torch.nn.functional.normalize(x, dim=-1) for x in converted]
    require_no_transform()
    return list(_Unit.apply(*converted))  # pyright: ignore


def require_no_transform() -> None:
    """Refuse torch.func.grad, vmap and the like, which would want second derivatives and batched forms."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "the losses of dualtemp cannot be transformed by torch.func (grad, vmap, ...): call backward(), or "
            "torch.autograd.grad"
        )


def lengths_of(x: Tensor) -> Tensor:
    """|x| of embeddings (..., D) as (..., 1), never 0."""
    return torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(1e-12)


def gradient_of_unit(gradient: Tensor, y: Tensor, length: Tensor) -> Tensor:
    """Gradient for x, given that for y = x / |x|, all (..., D)."""
    return torch.addcmul(gradient, y, (gradient * y).sum(-1, keepdim=True), value=-1).div_(length)


class _Unit(torch.autograd.Function):
    """x / |x| with a third of the operations that autograd would take for its gradient."""

    @staticmethod
    def forward(ctx: Any, *embeddings: Tensor) -> tuple[Tensor, ...]:
        lengths = [lengths_of(x) for x in embeddings]
        units = [x / length for x, length in zip(embeddings, lengths, strict=True)]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*units, *lengths)
        return tuple(units)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        n, saved = len(gradients), ctx.saved_tensors
        return tuple(
            None if g is None else gradient_of_unit(g, y, length)
            for g, y, length in zip(gradients, saved[:n], saved[n:], strict=True)
        )


_HAS_SWITCHES = hasattr(torch.backends.cuda.matmul, "fp32_precision")  # since torch 2.9
_ON_CPU: Any = torch.backends.mkldnn.matmul if _HAS_SWITCHES else None  # pyright: ignore
_CPU = torch.device("cpu")
# The function behind _ON_CPU.fp32_precision; calling it directly takes a quarter of the time.
_GETTER: Any = getattr(torch._C, "_get_fp32_precision_getter", None)
_precision_on_cpu = partial(_GETTER, "mkldnn", "matmul") if _GETTER else partial(getattr, _ON_CPU, "fp32_precision")
_NOTHING_TO_DO = nullcontext()


def true_precision(device: torch.device) -> AbstractContextManager[None]:
    """Products in true float32: no autocast, no TF32 or bfloat16 behind float32's back.

    At tau 0.01 a similarity that is off by 1e-3 changes its exponential by a tenth.
    """
    if device.type == "meta":  # shapes alone: nothing is multiplied, and autocast does not know it
        return _NOTHING_TO_DO
    # Usually nothing rounds on the CPU; turning the switch and putting it back takes a tenth of a small batch's step.
    plain = device == _CPU and _HAS_SWITCHES and not torch.is_autocast_enabled("cpu")
    if plain and _precision_on_cpu() in ("none", "ieee"):
        return _NOTHING_TO_DO
    return _switched_to_true_precision(device)


@contextmanager
def _switched_to_true_precision(device: torch.device) -> Iterator[None]:
    if torch.is_autocast_enabled(device.type):
        with torch.autocast(device.type, enabled=False), true_precision(device):
            yield
        return
    if not _HAS_SWITCHES:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    switch: Any = torch.backends.cuda.matmul if device.type == "cuda" else _ON_CPU
    before = switch.fp32_precision
    # A switch of "none" reads as the wider one that it follows; put back as read, it would not follow that any more.
    switch.fp32_precision = "none"
    followed = switch.fp32_precision == before
    switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        switch.fp32_precision = "none" if followed else before
