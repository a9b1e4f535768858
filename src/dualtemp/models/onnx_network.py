"""A graph in an ONNX file as a module that onnxruntime computes, and the input that stands beside it."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.errors import UserError
from dualtemp.models.model_input import ModelInput, input_from_json, input_of_timm, input_of_transformers

PREPROCESSING = "preprocessing.json"  # as `dualtemp export` writes it
MISSING = "its input (mean, deviation, size) is not known: put preprocessing.json, config.json of timm or "


class OnnxNetwork(nn.Module):
    """Features (N, F) of normalized images (N, C, H, W), on the CPU; gradients do not pass.

    The graph has one input of float32 images and, as its first output, a vector an image. Nothing in the file is run
    but the operations that onnxruntime knows.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        if not path.is_file():
            raise UserError(f"{path}: no such file; give an ONNX file, a run, imagenet or timm:NAME")
        if find_spec("onnxruntime") is None:
            raise UserError(f"{path}: needs onnxruntime, which is not installed: pip install 'dualtemp[onnx]'")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors, which are raised as well
        try:
            self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # whatever the bytes of a damaged file happen to mean
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{path}: onnxruntime cannot open it ({reason}); export or fetch it again") from None
        self.path, inputs = path, self.session.get_inputs()
        self.shape = list(inputs[0].shape)  # numbers, or names of what is free
        if len(inputs) != 1 or len(self.shape) != 4 or inputs[0].type != "tensor(float)":
            found = ", ".join(f"{each.type} {each.shape}" for each in inputs)
            raise UserError(f"{path}: one input of float32 images (N, C, H, W) expected, it has {found}")
        self.name = inputs[0].name
        self.num_features = 0

    def __deepcopy__(self, memo: Any) -> "OnnxNetwork":
        """The same: it has no state."""
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, F), in pieces if the graph takes a fixed number of images."""
        fixed = self.shape[0] if isinstance(self.shape[0], int) else len(images)
        parts = []
        for part in images.cpu().split(max(1, fixed)):
            padded = torch.cat((part, part[:1].expand(fixed - len(part), -1, -1, -1))) if len(part) < fixed else part
            found = self.session.run(None, {self.name: padded.contiguous().numpy()})[0]
            parts.append(torch.from_numpy(found)[: len(part)])
        return torch.cat(parts).to(images.device)

    def prepare(self, wanted: ModelInput) -> None:
        """Refuse an input that the graph does not take, and measure the number of features."""
        sides = (wanted.channels, wanted.size, wanted.size)
        if any(isinstance(a, int) and a != b for a, b in zip(self.shape[1:], sides, strict=True)):
            raise UserError(
                f"{self.path}: the graph takes images of {tuple(self.shape[1:])}, the file beside it says {sides}: put "
                "the right one there"
            )
        try:
            found = self(torch.zeros(1, *sides))
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(f"{self.path}: onnxruntime cannot compute it ({reason})") from None
        if found.ndim != 2:
            raise UserError(f"{self.path}: its first output is {tuple(found.shape)}, not a vector an image")
        self.num_features = found.shape[1]


def input_beside(path: Path) -> ModelInput:
    """Read how a graph wants its images from the file beside it; a UserError if none tells."""
    for name, read in (
        (PREPROCESSING, _input_of_export),
        ("config.json", lambda values: input_of_timm(values.get("pretrained_cfg") or values)),
        ("preprocessor_config.json", input_of_transformers),
    ):
        try:
            values = json.loads((path.parent / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(values, dict) and values.get("levels"):
            kind = "stacks of channels" if len(values["levels"]) != 1 else "gray images by levels of its own"
            raise UserError(f"{path}: it takes {kind}, which this way are not read: give the run itself")
        if isinstance(values, dict) and (found := read(values)) is not None:
            return found
    raise UserError(f"{path}: {MISSING}preprocessor_config.json beside it")


def _input_of_export(values: dict[str, Any]) -> ModelInput | None:
    try:
        resize = values["resize"]
        crop = values["size"] / resize["shorter_side"]
        return input_from_json({**values, "interpolation": resize["interpolation"], "crop": crop})
    except (TypeError, KeyError, ZeroDivisionError):
        return None
