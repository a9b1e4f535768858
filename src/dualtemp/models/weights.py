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
from dualtemp.models.onnx_weights import onnx_weights
from dualtemp.models.weights_matching import Misfit, match_weights

BACKBONE_FILE = "backbone.safetensors"  # of a run folder
HUB_FILES = ("model.safetensors", "pytorch_model.bin")  # of a folder of Hugging Face or timm
CHECKPOINT_MARK = b"dualtemp checkpoint"  # how the checkpoints of a run begin (runs/checkpoint.py)
PICKLES = (".pt", ".pth", ".bin", ".ckpt")
# Keys under which checkpoints hold the weights.
CHECKPOINT_ENTRIES = ("state_dict", "model", "model_state_dict", "backbone", "encoder", "teacher", "student")


def save_backbone(path: Path | str, module: nn.Module, metadata: Mapping[str, str] | None = None) -> None:
    """Write a module's state dict to a safetensors file, under its own names, atomically.

    Args:
        path: of the file, in an existing folder.
        module: on any device, in any memory format.
        metadata: text that goes into the file's header.
    """
    with whole_file(Path(path)) as file:
        file.write(backbone_bytes(module, metadata))


def backbone_bytes(module: nn.Module, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the content of the file that `save_backbone` writes."""
    # Each tensor on its own and contiguous: the format has neither shared memory nor channels-last.
    tensors = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in module.state_dict().items()}
    return ordered_safetensors(tensors, metadata)


def ordered_safetensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return tensors, contiguous and on the CPU, as a safetensors file; the same content gives the same bytes."""
    content = safetensors.torch.save(dict(tensors), metadata={"format": "pt", **(metadata or {})})
    return _in_order(content)


def _in_order(content: bytes) -> bytes:
    """Sort the header of a safetensors file: the library orders metadata differently in every process."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:start]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[start:]


def load_weights(path: Path | str) -> dict[str, Tensor]:
    """Read the tensors of a weights file, by name, onto the CPU.

    Args:
        path: of a run folder (its backbone is read), a folder of Hugging Face or timm, a .safetensors file, an .onnx
            file, or a .pt, .pth, .bin or .ckpt file of torch that holds a state dict or a checkpoint with one inside.
    """
    path = Path(path)
    if os.path.isdir(path):  # False, not an error, for what can be no path
        files = (path / name for name in (BACKBONE_FILE, *HUB_FILES))
        file = next((file for file in files if os.path.isfile(file)), None)
        if file is None:
            raise UserError(f"{path}: no {BACKBONE_FILE} in this folder; give a finished run or a weights file.")
        path = file
    if not os.path.isfile(path):
        raise UserError(
            f"{path}: no such weights file; give a run folder, a .safetensors, .pt, .pth or .onnx file, imagenet or "
            "timm:NAME."
        )
    if path.suffix == ".safetensors":
        try:
            return safetensors.torch.load_file(path)
        except (safetensors.SafetensorError, OSError) as error:
            raise UserError(f"{path}: not a whole safetensors file ({_first_line(error)}); fetch it again.") from error
    if path.suffix == ".onnx":
        return onnx_weights(path)
    if path.suffix not in PICKLES:
        raise UserError(
            f"{path}: weights must be .safetensors, .onnx or {', '.join(PICKLES)}, not {path.suffix or 'nameless'}."
        )
    try:
        with open(path, "rb") as file:
            is_checkpoint = file.read(len(CHECKPOINT_MARK)) == CHECKPOINT_MARK
        content = None if is_checkpoint else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles raise whatever their bytes happen to mean
        raise UserError(
            f"{path}: refused, because it is damaged or holds more than tensors ({_first_line(error)}); "
            "save the bare state dict and give that."
        ) from error
    if is_checkpoint:
        run = path.absolute().parent.parent
        raise UserError(f"{path}: a checkpoint, from which a run resumes; give the run's folder, {run}")
    return _state_dict(content, path)


def initialize(backbone: nn.Module, path: Path | str) -> None:
    """Load the weights of an earlier run, or of a file of timm or torchvision, into a backbone.

    A classifier in the file is ignored, and so is everything besides the backbone if its names have a prefix
    (`match_weights`). Everything else must fit; if it does not, nothing is changed.

    Args:
        backbone: takes the weights.
        path: as in `load_weights`.
    """
    own = backbone.state_dict()
    try:
        fit = match_weights(load_weights(path), own)
    except Misfit as error:
        raise misfit_error(path, error) from None
    backbone.load_state_dict(own | fit.tensors)


def misfit_error(source: Path | str, error: Misfit) -> UserError:
    """Return the error for weights of another network."""
    return UserError(
        f"{source}: does not fit this backbone ({error}); take the backbone, image size and channels that it was "
        "trained with."
    )


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
