"""Why a run ends early, and the message for each reason.

A requested stop, values that are not finite, a full disk, too little memory.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.errors import UserError, writing
from dualtemp.runs.checkpoint import checkpoints
from dualtemp.runs.folder import RunFolder


class Interrupted(Exception):
    """The run was asked to stop and has saved a checkpoint."""


def explain_disk_errors(run: RunFolder) -> AbstractContextManager[None]:
    """Turn write errors, such as a full disk, into a UserError that names the last good checkpoint."""
    return writing(run.path, lambda: f"make room, then `dualtemp resume {run.path}`; {describe_last_checkpoint(run)}")


@contextmanager
def explain_memory_errors(settings: Settings, run: RunFolder) -> Iterator[None]:
    """Turn a lack of memory, of the machine or of a device, into a UserError that says how to need less."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(_out_of_memory(error, settings, run)) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory; not all of torch's allocators raise a type of its own."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and ("out of memory" in said or "can't allocate memory" in said)


def _out_of_memory(error: BaseException, settings: Settings, run: RunFolder) -> str:
    asked = re.search(r"ried to allocate ([\d.]+) (\w+)", str(error))
    wanted = ""
    if asked:
        amount = f"{float(asked[1]) / 2**30:,.1f} GiB" if asked[2] == "bytes" else f"{asked[1]} {asked[2]}"
        wanted = f" (it asked for {amount} at once)"
    share = settings.chunk or settings.batch // distributed.world_size()
    chunk, begun = max(2, share // 4), bool(checkpoints(run.checkpoints))
    how = f"set chunk: {chunk} in {run.config} and resume" if begun else f"--chunk {chunk}"
    others = "" if begun else ", or a smaller --batch, --image-size or --backbone"
    return f"there is not enough memory{wanted}; {describe_last_checkpoint(run)}. Try this: {how} (same loss){others}"


def all_finite(*parts: Any) -> bool:
    """Whether every number in these modules and optimizers is finite; None counts as finite."""
    flags = []
    for part in parts:
        state = {} if part is None else part.state_dict() if isinstance(part, nn.Module) else part.state
        flags += [tensor.isfinite().all() for tensor in _tensors(state) if tensor.is_floating_point()]
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for flag in flags:
        by_device.setdefault(flag.device, []).append(flag)
    return all(bool(torch.stack(together).all()) for together in by_device.values())  # one synchronization per device


def nonfinite_loss(step: int, steps: int, run: RunFolder, settings: Settings) -> UserError:
    """The error for a loss that is not finite. `step` counts from 0; an epoch has `steps`."""
    return UserError(
        f"the loss is not finite at {_position(step, steps)}; {describe_last_checkpoint(run)}. {_remedy(settings)}"
    )


def nonfinite_weights(step: int, steps: int, run: RunFolder, settings: Settings) -> UserError:
    """The error for weights that a step has made useless."""
    position, left = _position(step, steps), describe_last_checkpoint(run)
    return UserError(f"the weights are not finite after {position}; {left}. {_remedy(settings)}")


def nonfinite_features(done: int, steps: int, run: RunFolder, settings: Settings) -> UserError:
    """The error for an encoder whose weights are finite, but too large to compute features with."""
    when = f"after {_position(done - 1, steps)}" if done else "before the first step"
    left = describe_last_checkpoint(run)
    return UserError(f"the features are not finite {when}, though the weights are; {left}. {_remedy(settings)}")


def failure_reason(error: Exception) -> str:
    """Why a run failed, in one line for its folder."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, RuntimeError) and distributed.world_size() > 1 and distributed.lost_peer(error):
        return "another process of this run has ended"
    return f"{type(error).__name__}: {error}"


def describe_last_checkpoint(run: RunFolder) -> str:
    """A clause that names the newest checkpoint."""
    kept = checkpoints(run.checkpoints)
    return f"the last good checkpoint is {kept[-1].name}" if kept else "there is no checkpoint yet"


def _position(step: int, steps: int) -> str:
    return f"step {step + 1} (epoch {step // steps + 1})"


def _remedy(settings: Settings) -> str:
    return "Try a lower --lr, --clip-gradient 1" + (", --amp none or bf16" if settings.amp == "fp16" else "")


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        yield state
    elif hasattr(state, "values"):
        for value in state.values():
            yield from _tensors(value)
