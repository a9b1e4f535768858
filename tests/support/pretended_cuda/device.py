"""A pretended CUDA device for a torch without one: tensors that say cuda:0 and compute on the CPU.

They refuse partners on the CPU as CUDA does, and whatever would make the host wait for the device is noted, with the
line of dualtemp that asked for it. What it cannot show: races, NCCL, cuDNN, speed.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten.bincount.default,
    aten._unique2.default,
    aten.repeat_interleave.Tensor,
}
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}


class WrongDevice(RuntimeError):
    """Tensors of the CPU and of the device met in one operation."""


class Log:
    """What was noted while `inside` is set."""

    def __init__(self) -> None:
        self.inside, self.waits, self.copies = False, Counter(), Counter()

    def note(self, kind: Counter, what: str) -> None:
        if self.inside:
            kind[f"{what} at {asking_line()}"] += 1


log = Log()
pinned: set[int] = set()  # addresses of memory that was asked for as pinned


class DeviceTensor(torch.Tensor):
    """Says cuda:0; `there` is what it holds, on the CPU."""

    there: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore

    @staticmethod
    def __new__(cls, there: torch.Tensor) -> "DeviceTensor":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            there.size(),
            strides=there.stride(),
            storage_offset=there.storage_offset(),
            dtype=there.dtype,
            device=torch.device("cuda:0"),
        )
        made.there = there
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return carry_out(function, args, kwargs or {})


class PretendedCuda(TorchDispatchMode):
    """Inside, tensors may be made on, and moved to, the pretended device."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return carry_out(function, args, kwargs or {})


def carry_out(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Check and note an operation, and compute it on the CPU."""
    flat = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
    on = [each for each in flat if isinstance(each, DeviceTensor)]
    off = [each for each in flat if not isinstance(each, DeviceTensor)]
    device = kwargs.get("device")
    to_device = bool(on) if device is None else torch.device(device).type == "cuda"

    if function in (aten._to_copy.default, aten.copy_.default):
        source = on if isinstance(args[-1] if function is aten.copy_.default else args[0], DeviceTensor) else off
        goal = isinstance(args[0], DeviceTensor) if function is aten.copy_.default else to_device
        note_copy(source, goal, bool(kwargs.get("non_blocking")))
    elif on:
        refuse_cpu_partners(function, args, off)
        masks = function in INDEXING and any(each is not None and each.dtype == torch.bool for each in args[1])
        if function in WAITING or masks:
            log.note(log.waits, f"{function}{' with a mask' if masks else ''}")

    inner_args, inner = tree_map(held, args), tree_map(held, kwargs)
    if device is not None and to_device:
        inner["device"] = torch.device("cpu")
    wants_pinned = bool(inner.pop("pin_memory", False))
    with _disable_current_modes():
        out = function(*inner_args, **inner)
        if wants_pinned:
            pinned.add(out.untyped_storage().data_ptr())
        if function is aten._to_copy.default and any(out is each for each in inner_args):
            out = out.clone()
    if to_device:
        out = tree_map(lambda each: DeviceTensor(each) if type(each) is torch.Tensor else each, out)
    return return_and_correct_aliasing(function, args, kwargs, out) if on else out


def note_copy(source: Sequence[torch.Tensor], to_device: bool, non_blocking: bool) -> None:
    from_device = any(isinstance(each, DeviceTensor) for each in source)
    if from_device and not to_device:
        log.note(log.waits, "copy from the device")
    if source and not from_device and to_device:
        log.note(log.copies, "copy to the device")
        if not non_blocking or source[0].untyped_storage().data_ptr() not in pinned:
            log.note(log.waits, "copy to the device of memory that is not pinned, or blocking,")


def refuse_cpu_partners(function: Any, args: Any, off: list[torch.Tensor]) -> None:
    """Scalars may come from the CPU, and indices of a tensor on the device."""
    bad = [each for each in off if each.ndim > 0]
    if function in INDEXING and isinstance(args[0], DeviceTensor):
        bad = [each for each in bad if not any(each is index for index in args[1])]
    if bad:
        raise WrongDevice(f"{function} of cuda:0 and CPU {[tuple(each.shape) for each in bad]} at {asking_line()}")


def held(each: Any) -> Any:
    return each.there if isinstance(each, DeviceTensor) else each


def on_cpu(state: Any) -> Any:
    """Tensors anywhere in a state as plain ones, to be saved."""
    return tree_map(lambda each: each.there.detach().clone() if isinstance(each, DeviceTensor) else each, state)


def asking_line() -> str:
    """The innermost line of dualtemp, or whose else, that runs."""
    frame, found = sys._getframe(1), "autograd"
    while frame is not None:
        name = frame.f_code.co_filename
        if f"{os.sep}dualtemp{os.sep}" in name:
            return f"{name.rsplit(os.sep + 'dualtemp' + os.sep, 1)[1]}:{frame.f_lineno}"
        frame = frame.f_back
    return found


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """Make Python's side of torch believe in a CUDA device; guard.cpp, loaded before torch, does so in the rest."""
    cuda: Any = torch.cuda
    for name, answer in {
        "is_available": True,
        "get_device_name": "pretended",
        "current_device": 0,
        "device_count": 1,
        "_lazy_init": None,
        "manual_seed_all": None,
        "manual_seed": None,
        "synchronize": None,
        "get_rng_state": torch.get_rng_state(),
        "set_rng_state": None,
    }.items():
        setattr(cuda, name, lambda *_, _answer=answer, **__: _answer)
    torch.inference_mode = torch.no_grad  # pyright: ignore (wrapped tensors know no inference mode)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    save: Any = torch.save
    torch.save = lambda state, *args, **kwargs: save(on_cpu(state), *args, **kwargs)
    torch._C._set_only_lift_cpu_tensors(True)
    with PretendedCuda():
        yield
