"""The files of each export format: how they are written, and how they are read back to be compared."""

import contextlib
import json
import logging
import runpy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dualtemp.data.augment.views import Views
from dualtemp.errors import UserError
from dualtemp.exporting.builder import BUILDER, WEIGHTS, builder
from dualtemp.exporting.preprocessing import timm_preprocessing
from dualtemp.models.weights import save_backbone

CONFIG, ONNX, PROGRAM = "config.json", "model.onnx", "model.pt2"
OPSET = 18  # of ONNX; onnxruntime has it since 1.14
Features = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Encoder:
    """What is exported: a backbone on the CPU in eval mode, how to build it (`models.describe_backbone`), its views.

    normalising: whether the graphs of ONNX and torch.export take uint8 pixels and normalise them themselves.
    """

    backbone: nn.Module
    recipe: dict[str, Any]
    views: Views
    normalising: bool = False

    @property
    def channels(self) -> int:
        """Of the images."""
        return len(self.views.mean)

    def graph(self) -> nn.Module:
        """The module that graphs are made of."""
        return Normalising(self.backbone, self.views).eval() if self.normalising else self.backbone

    def pixels(self, count: int) -> Tensor:
        """Some uint8 pixels (count, C, size, size), always the same."""
        shape = (count, self.channels, self.views.size, self.views.size)
        return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))

    def graph_input(self, pixels: Tensor) -> Tensor:
        """What the graph takes for these pixels."""
        return pixels if self.normalising else self.views.normalize(pixels)


class Normalising(nn.Module):
    """uint8 pixels (N, C, H, W) -> features, with the normalisation inside."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, views: Views) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("mean", torch.tensor(views.mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(views.std).view(-1, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (N, F)."""
        return self.backbone((pixels.to(torch.float32) / 255.0 - self.mean) / self.std)


class Format(NamedTuple):
    """A format: its files, what it needs installed, why an encoder cannot have it ("" if it can), how it is written
    into a folder, and how its files there turn uint8 pixels into features.
    """

    files: tuple[str, ...]
    packages: tuple[str, ...]
    refusal: Callable[[Encoder], str]
    write: Callable[[Encoder, Path], None]
    read: Callable[[Encoder, Path], Features]
    graph: bool = False


def _possible(_: Encoder) -> str:
    return ""


def _not_buildable(encoder: Encoder) -> str:
    plugin = encoder.recipe["library"] == "plugin"
    return f"{encoder.recipe['model']} comes from a plugin, so that no model.py can build it" if plugin else ""


def _write_safetensors(encoder: Encoder, folder: Path) -> None:
    save_backbone(folder / WEIGHTS, encoder.backbone)
    (folder / BUILDER).write_text(builder(encoder.recipe, encoder.views.size, encoder.channels))


def _read_safetensors(encoder: Encoder, folder: Path) -> Features:
    model = runpy.run_path(str(folder / BUILDER))["load"](folder / WEIGHTS)
    return lambda pixels: model(encoder.views.normalize(pixels))


def _not_timm(encoder: Encoder) -> str:
    recipe = encoder.recipe
    if recipe["library"] != "timm":
        return f"{recipe['model']} is no architecture of timm"
    if recipe["replaced"]:
        return f"timm has no {recipe['model']} with the stem for small images"
    if recipe["model"].startswith("swin_"):  # it knows its own layout by the classifier, and renames what lacks one
        return f"timm misreads the weights of a {recipe['model']} without classifier"
    return ""


def _write_timm(encoder: Encoder, folder: Path) -> None:
    arguments = {name: value for name, value in encoder.recipe["arguments"].items() if name != "num_classes"}
    config = {
        "architecture": encoder.recipe["model"],
        "num_classes": 0,
        "num_features": encoder.recipe["num_features"],
        "model_args": arguments,
        # No first_conv and no classifier: timm shall adapt neither.
        "pretrained_cfg": {**timm_preprocessing(encoder.views), "num_classes": 0},
    }
    save_backbone(folder / WEIGHTS, encoder.backbone)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _read_timm(encoder: Encoder, folder: Path) -> Features:
    import timm

    config = json.loads((folder / CONFIG).read_text())
    model = timm.create_model(
        config["architecture"],
        pretrained=True,
        num_classes=0,
        pretrained_cfg={**config["pretrained_cfg"], "file": str(folder / WEIGHTS)},
        **config["model_args"],
    ).eval()
    return lambda pixels: model(encoder.views.normalize(pixels))


def _write_onnx(encoder: Encoder, folder: Path) -> None:
    torch.onnx.export(
        encoder.graph(),
        (encoder.graph_input(encoder.pixels(2)),),
        str(folder / ONNX),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        input_names=["images"],
        output_names=["features"],
        opset_version=OPSET,
        external_data=False,
        verbose=False,
    )


def _read_onnx(encoder: Encoder, folder: Path) -> Features:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(folder / ONNX, options, providers=["CPUExecutionProvider"])

    def features(pixels: Tensor) -> Tensor:
        (found,) = session.run(None, {"images": encoder.graph_input(pixels).numpy()})
        return torch.from_numpy(found)

    return features


def _write_program(encoder: Encoder, folder: Path) -> None:
    batch = torch.export.Dim("batch")
    example = (encoder.graph_input(encoder.pixels(2)),)
    torch.export.save(torch.export.export(encoder.graph(), example, dynamic_shapes=({0: batch},)), folder / PROGRAM)


def _read_program(encoder: Encoder, folder: Path) -> Features:
    module = torch.export.load(folder / PROGRAM).module()
    return lambda pixels: module(encoder.graph_input(pixels))


FORMATS = {
    "safetensors": Format((WEIGHTS, BUILDER), (), _not_buildable, _write_safetensors, _read_safetensors),
    "timm": Format((WEIGHTS, CONFIG), (), _not_timm, _write_timm, _read_timm),
    "onnx": Format((ONNX,), ("onnx", "onnxscript", "onnxruntime"), _possible, _write_onnx, _read_onnx, graph=True),
    "torch-export": Format((PROGRAM,), (), _possible, _write_program, _read_program, graph=True),
}


def refuse_missing_packages(formats: tuple[str, ...]) -> None:
    """Say what has to be installed for these formats."""
    for name in formats:
        missing = [package for package in FORMATS[name].packages if find_spec(package) is None]
        if missing:
            raise UserError(f"--format {name} needs {', '.join(missing)}: pip install 'dualtemp[onnx]'")


def written(name: str, encoder: Encoder, folder: Path) -> float:
    """Write a format's files into a folder, read them back, and give the largest difference of features from the run's.

    It is relative to the largest feature, if that is above 1. One that matters is an error.
    """
    with _quietly(), torch.no_grad():
        try:
            FORMATS[name].write(encoder, folder)
            pixels = encoder.pixels(3)  # another number than the graphs were made with
            wanted = encoder.backbone(encoder.views.normalize(pixels))
            found = FORMATS[name].read(encoder, folder)(pixels)
        except OSError:
            raise
        except Exception as error:  # exporters fail in as many ways as there are models
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise UserError(
                f"--format {name}: {encoder.recipe['model']} cannot be exported ({reason}); take another format"
            ) from error
    difference = float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1.0))
    if not difference < 1e-4:
        raise UserError(
            f"--format {name}: the exported {encoder.recipe['model']} gives other features than the run's encoder "
            f"(by {difference:.2g}); nothing was written, take another format"
        )
    return difference


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What exporters say to their own developers stays unsaid."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
