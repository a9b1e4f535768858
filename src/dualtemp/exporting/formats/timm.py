"""timm: a folder for `timm.create_model` and the Hugging Face hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dualtemp.exporting.export_format import ExportFormat, LoadingText
from dualtemp.exporting.loading import torch_program

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from dualtemp.exporting.exported_encoder import ExportedEncoder

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def write(encoder: ExportedEncoder, folder: Path) -> None:
    """Write model.safetensors and config.json."""
    from dualtemp.exporting.preprocessing import timm_preprocessing
    from dualtemp.models.weights import save_backbone

    config = {
        "architecture": encoder.recipe["model"],
        "num_classes": 0,
        "num_features": encoder.recipe["num_features"],
        "model_args": {name: value for name, value in encoder.recipe["arguments"].items() if name != "num_classes"},
        # No first_conv and no classifier, so that timm adapts neither.
        "pretrained_cfg": {**timm_preprocessing(encoder.views), "num_classes": 0},
    }
    save_backbone(folder / WEIGHTS, encoder.backbone)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def read(encoder: ExportedEncoder, folder: Path) -> Callable[[Tensor], Tensor]:
    """Create the model by timm from the two files."""
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


def refusal(encoder: ExportedEncoder) -> str:
    """Refuse what timm cannot build, or misreads."""
    recipe = encoder.recipe
    if recipe["library"] != "timm":
        return f"{recipe['model']} is no architecture of timm"
    if recipe["replaced"]:
        return f"timm has no {recipe['model']} with the stem for small images"
    if recipe["model"].startswith("swin_"):  # recognizes its own layout by the classifier, and renames what lacks one
        return f"timm misreads the weights of a {recipe['model']} without classifier"
    return ""


def how_to_load(entry: Mapping[str, Any], recipe: Mapping[str, Any], how: Mapping[str, Any]) -> list[LoadingText]:
    """By `timm.create_model`."""
    text = f"`{CONFIG}` and `{WEIGHTS}` are what timm (1.0.16 or newer) and the Hugging Face hub expect."
    call = 'timm.create_model("local-dir:.", pretrained=True).eval()'
    return [LoadingText("timm", text, torch_program("import timm", call))]


FORMAT = ExportFormat(
    name="timm",
    files=(WEIGHTS, CONFIG),
    write=write,
    read=read,
    how_to_load=how_to_load,
    refusal=refusal,
    library="timm",
)
