"""Why a run stops before its end, and what is said then: asked to, not finite, a disk that is full."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.errors import UserError
from dualtemp.runs.checkpoint import checkpoints
from dualtemp.runs.folder import RunFolder


class Interrupted(Exception):
    """The run was asked to stop, and is saved."""


@contextlib.contextmanager
def disk_trouble_told(run: RunFolder) -> Iterator[None]:
    """A full disk, or one that went away, is one clear line; the older checkpoint is still there."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{run.path} cannot be written ({error.strerror or error}); {last_checkpoint(run)}. "
            f"Make room, then `dualtemp resume {run.path}`"
        ) from None


def all_finite(*parts: Any) -> bool:
    """Whether every number of these modules and optimisers is finite; None has none."""
    flags = []
    for part in parts:
        state = {} if part is None else part.state_dict() if isinstance(part, nn.Module) else part.state
        flags += [tensor.isfinite().all() for tensor in _tensors(state) if tensor.is_floating_point()]
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for flag in flags:
        by_device.setdefault(flag.device, []).append(flag)
    return all(bool(torch.stack(together).all()) for together in by_device.values())  # one wait for each device


def loss_not_finite(step: int, steps: int, run: RunFolder, chosen: Settings) -> UserError:
    """What to say of a loss that is not a number, at a step from 0 of epochs of so many steps."""
    return UserError(f"the loss is not finite at {_place(step, steps)}; {last_checkpoint(run)}. {_remedy(chosen)}")


def weights_not_finite(step: int, steps: int, run: RunFolder, chosen: Settings) -> UserError:
    """What to say of weights that a step has made useless."""
    return UserError(
        f"the weights are not finite after {_place(step, steps)}; {last_checkpoint(run)}. {_remedy(chosen)}"
    )


def trouble_of(error: Exception) -> str:
    """Why a run failed, for its folder."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, RuntimeError) and distributed.world_size() > 1 and distributed.lost_peer(error):
        return "another process of this run has ended"
    return f"{type(error).__name__}: {error}"


def last_checkpoint(run: RunFolder) -> str:
    """Name the checkpoint that is left."""
    kept = checkpoints(run.checkpoints)
    return f"the last good checkpoint is {kept[-1].name}" if kept else "there is no checkpoint yet"


def _place(step: int, steps: int) -> str:
    return f"step {step + 1} (epoch {step // steps + 1})"


def _remedy(chosen: Settings) -> str:
    return "Try a lower --lr, --clip-gradient 1" + (", --amp none or bf16" if chosen.amp == "fp16" else "")


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif hasattr(state, "values"):
        for value in state.values():
            yield from _tensors(value)
