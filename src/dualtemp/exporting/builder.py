"""model.py of an export: a program that builds the encoder and loads its weights, without dualtemp."""

import inspect
from typing import Any

from dualtemp.models import resnet_mini

_OPENING = '''"""An image encoder; needs {packages}."""

from __future__ import annotations

from pathlib import Path

'''
_LOAD = '''

def load(path: str | Path = Path(__file__).with_name("{weights}")) -> nn.Module:
    """Load the trained encoder in eval mode: images (N, {channels}, {size}, {size}) -> features (N, {width}).

    The images are normalized as preprocessing.json says.
    """
    model = build()
    model.load_state_dict(load_file(path))
    return model.eval()
'''


def builder(recipe: dict[str, Any], size: int, channels: int, weights: str) -> str:
    """Return the text of model.py, with `build()` and `load(path)`.

    Args:
        recipe: of `models.describe_backbone`.
        size: of the images.
        channels: of the images.
        weights: the name of the weights file beside it.
    """
    load = _LOAD.format(channels=channels, size=size, width=recipe["num_features"], weights=weights)
    if recipe["library"] == "timm":
        body = [line for line in recipe["python"].splitlines() if not line.startswith(("import ", "from "))]
        imports = "import timm\nfrom safetensors.torch import load_file\nfrom torch import nn\n"
        return _OPENING.format(packages="torch, timm and safetensors") + imports + _build(body) + load
    imports = "from safetensors.torch import load_file\nfrom torch import Tensor, nn\n\n\n"
    classes = "\n\n".join(inspect.getsource(part) for part in (resnet_mini.BasicBlock, resnet_mini.ResNetMini))
    body = [f"model = ResNetMini({', '.join(map(str, recipe['arguments'].values()))})"]
    return _OPENING.format(packages="torch and safetensors") + imports + classes + _build(body) + load


def _build(body: list[str]) -> str:
    lines = ["", "", "def build() -> nn.Module:", '    """The encoder, untrained."""']
    return "\n".join([*lines, *(f"    {line}" for line in body), "    return model", ""])
