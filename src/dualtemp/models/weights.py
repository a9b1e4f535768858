"""Weights files: save our backbones, load anybody's. Loading a file never runs code in it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from dualtemp.atomic_write import whole_file
from dualtemp.errors import UserError

BACKBONE_FILE = "backbone.safetensors"  # of a run folder
PICKLES = (".pt", ".pth", ".bin", ".ckpt")
# Prefixes of the layers after the features, in files of timm and torchvision.
CLASSIFIERS = ("fc.", "head.", "classifier.", "head_dist.", "last_linear.")
# Keys under which checkpoints hold the weights.
CHECKPOINT_ENTRIES = ("state_dict", "model", "model_state_dict", "backbone", "encoder", "teacher", "student")


def save_backbone(path: Path | str, module: nn.Module, metadata: Mapping[str, str] | None = None) -> None:
    """Write a module's state dict to a safetensors file, under its own names, atomically.

    Args:
        path: of the file, in an existing folder.
        module: on any device, in any memory format.
        metadata: text that goes into the file's header.
    """
    # Each tensor on its own and contiguous: the format has neither shared memory nor channels-last.
    tensors = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in module.state_dict().items()}
    content = safetensors.torch.save(tensors, metadata={"format": "pt", **(metadata or {})})
    with whole_file(Path(path)) as file:
        file.write(_in_order(content))


def _in_order(content: bytes) -> bytes:
    """Sort the header of a safetensors file: the library orders metadata differently in every process."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:start]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[start:]


def load_weights(path: Path | str) -> dict[str, Tensor]:
    """Read the tensors of a weights file, by name, onto the CPU.

    Args:
        path: of a run folder (its backbone is read), a .safetensors file, or a .pt, .pth, .bin or .ckpt file of torch
            that holds a state dict or a checkpoint with one inside.
    """
    path = Path(path)
    if os.path.isdir(path):  # False, not an error, for what can be no path
        path = path / BACKBONE_FILE
        if not os.path.isfile(path):
            raise UserError(f"{path.parent}: no {BACKBONE_FILE} in this folder; give a finished run or a weights file.")
    if not os.path.isfile(path):
        raise UserError(f"{path}: no such weights file; give a run folder, a .safetensors or a .pt / .pth file.")
    if path.suffix == ".safetensors":
        try:
            return safetensors.torch.load_file(path)
        except (safetensors.SafetensorError, OSError) as error:
            raise UserError(f"{path}: not a whole safetensors file ({_first_line(error)}); fetch it again.") from error
    if path.suffix not in PICKLES:
        raise UserError(
            f"{path}: weights must be .safetensors or {', '.join(PICKLES)}, not {path.suffix or 'nameless'}."
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles raise whatever their bytes happen to mean
        raise UserError(
            f"{path}: refused, because it is damaged or holds more than tensors ({_first_line(error)}); "
            "save the bare state dict and give that."
        ) from error
    return _state_dict(content, path)


def initialize(backbone: nn.Module, path: Path | str) -> None:
    """Load the weights of an earlier run, or of a file of timm or torchvision, into a backbone.

    A classifier in the file is ignored, and so is everything besides the backbone if its names have a prefix such as
    "module.", "backbone." or "encoder." (if several fit, the first in the file is taken: in MoCo's, the query encoder).
    Everything else must fit; if it does not, nothing is changed.

    Args:
        backbone: takes the weights.
        path: as in `load_weights`.
    """
    own = backbone.state_dict()
    found = _without_prefix(load_weights(path), own)
    # Files older than the counter of batch norm lack it; nothing here needs it.
    missing = [name for name in own if name not in found and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in found if name not in own and not name.startswith(CLASSIFIERS)]
    shapes = [
        f"{name} is {tuple(found[name].shape)} in the file, {tuple(own[name].shape)} here"
        for name in own
        if name in found and found[name].shape != own[name].shape
    ]
    fitting = sum(name in found and found[name].shape == own[name].shape for name in own)
    first = next(iter([*(f"it lacks {name}" for name in missing), *(f"it has {n}" for n in unexpected), *shapes]), None)
    if first is not None:
        raise UserError(
            f"{path}: does not fit this backbone ({fitting} of {len(own)} tensors fit; {first}); "
            "take the backbone, image size and channels that it was trained with."
        )
    backbone.load_state_dict(own | {name: found[name] for name in own if name in found})


def _without_prefix(weights: dict[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under the prefix that makes most names fit; with none, all of them."""
    first = next(iter(own))
    prefixes = ["", *(name.removesuffix(first) for name in weights if name.endswith("." + first))]
    best = max(prefixes, key=lambda prefix: sum(prefix + name in weights for name in own))
    return {name[len(best) :]: value for name, value in weights.items() if name.startswith(best)}


def _state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    """Find the state dict in what a torch file holds."""
    for _ in range(3):
        if not isinstance(content, Mapping):
            break
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return {str(name): value for name, value in content.items()}
        inner = next((content[entry] for entry in CHECKPOINT_ENTRIES if entry in content), None)
        if inner is None:
            break
        content = inner
    raise UserError(f"{path}: holds no state dict (names with tensors); save model.state_dict() and give that.")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
