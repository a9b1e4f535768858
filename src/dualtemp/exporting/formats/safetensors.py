"""safetensors: the weights, and a model.py that builds the module and loads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dualtemp.exporting.export_format import ExportFormat, LoadingText
from dualtemp.exporting.loading import torch_program

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from dualtemp.exporting.exported_encoder import ExportedEncoder

WEIGHTS, BUILDER = "model.safetensors", "model.py"
# Architectures of timm whose parameters torchvision names alike.
TORCHVISION = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")


def write(encoder: ExportedEncoder, folder: Path) -> None:
    """Write model.safetensors and model.py."""
    from dualtemp.exporting.builder import builder
    from dualtemp.models.weights import save_backbone

    save_backbone(folder / WEIGHTS, encoder.backbone)
    (folder / BUILDER).write_text(builder(encoder.recipe, encoder.views.size, encoder.channels, WEIGHTS))


def read(encoder: ExportedEncoder, folder: Path) -> Callable[[Tensor], Tensor]:
    """Run model.py, as a user would."""
    import runpy

    model = runpy.run_path(str(folder / BUILDER))["load"](folder / WEIGHTS)
    return lambda pixels: model(encoder.views.normalize(pixels))


def refusal(encoder: ExportedEncoder) -> str:
    """Refuse the backbones of plugins."""
    is_plugin = encoder.recipe["library"] == "plugin"
    return f"{encoder.recipe['model']} comes from a plugin, so that no model.py can build it" if is_plugin else ""


def how_to_load(entry: Mapping[str, Any], recipe: Mapping[str, Any], how: Mapping[str, Any]) -> list[LoadingText]:
    """By model.py; ResNets also by torchvision."""
    text = f"`{WEIGHTS}` holds the weights, `{BUILDER}` builds the module and loads them."
    program = torch_program("from model import load", f'load("{WEIGHTS}")')
    found = [LoadingText(f"torch: {BUILDER}", text, program)]
    if recipe["model"] in TORCHVISION and recipe["library"] == "timm":
        found.append(LoadingText("torchvision", "The same weights in torchvision's module.", _torchvision(recipe, how)))
    return found


def _torchvision(recipe: Mapping[str, Any], how: Mapping[str, Any]) -> str:
    changes = {**recipe["replaced"], "fc": "nn.Identity()"}
    if "conv1" not in changes and how["channels"] != 3:
        changes["conv1"] = f"nn.Conv2d({how['channels']}, 64, 7, 2, 3, bias=False)"
    return "\n".join(
        [
            "import torch",
            "import torchvision",
            "from safetensors.torch import load_file",
            "from torch import nn",
            "",
            f"encoder = torchvision.models.{recipe['model']}()",
            *(f"encoder.{place} = {module}" for place, module in changes.items()),
            f'encoder.load_state_dict(load_file("{WEIGHTS}"))',
            "with torch.no_grad():",
            "    features = encoder.eval()(torch.from_numpy(images))",
        ]
    )


FORMAT = ExportFormat(
    name="safetensors",
    files=(WEIGHTS, BUILDER),
    write=write,
    read=read,
    how_to_load=how_to_load,
    refusal=refusal,
    hint="its model.py builds the encoder",
)
