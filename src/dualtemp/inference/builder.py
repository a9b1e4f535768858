"""model.py of an export: a program that builds the encoder and loads its weights, without dualtemp."""

import inspect
from typing import Any

from dualtemp.models import resnet_mini

WEIGHTS, BUILDER = "model.safetensors", "model.py"

_LOAD = f'''

def load(path: str | Path = Path(__file__).with_name("{WEIGHTS}")) -> nn.Module:
    """The trained encoder, ready for use: images (N, {{channels}}, {{size}}, {{size}}), normalised as \
preprocessing.json says, -> features (N, {{width}})."""
    model = build()
    model.load_state_dict(load_file(path))
    return model.eval()
'''


def builder(recipe: dict[str, Any], size: int, channels: int) -> str:
    """The text of model.py, with `build()` and `load(path)`.

    Args:
        recipe: of `models.describe_backbone`.
        size: of the images.
        channels: of the images.
    """
    load = _LOAD.format(channels=channels, size=size, width=recipe["num_features"])
    if recipe["library"] == "timm":
        body = [line for line in recipe["python"].splitlines() if not line.startswith(("import ", "from "))]
        opening = '"""An image encoder of timm; needs torch, timm and safetensors."""\n\nfrom pathlib import Path\n\n'
        imports = "import timm\nfrom safetensors.torch import load_file\nfrom torch import nn\n"
        return opening + imports + _build(body) + load
    opening = '"""An image encoder; needs torch and safetensors."""\n\nfrom pathlib import Path\n\n'
    imports = "from safetensors.torch import load_file\nfrom torch import Tensor, nn\n\n\n"
    classes = "\n\n".join(inspect.getsource(part) for part in (resnet_mini.BasicBlock, resnet_mini.ResNetMini))
    return opening + imports + classes + _build([f"model = ResNetMini({size}, {channels})"]) + load


def _build(body: list[str]) -> str:
    lines = ["", "", "def build() -> nn.Module:", '    """The encoder, untrained."""']
    return "\n".join([*lines, *(f"    {line}" for line in body), "    return model", ""])
