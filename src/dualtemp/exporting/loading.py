"""Programs of the model card, which run without dualtemp: they prepare images, and encode them. Needs no torch."""

from collections.abc import Mapping
from typing import Any

_FROM_FILE = """\
import json
import numpy as np
from PIL import Image, ImageOps

how = json.load(open("preprocessing.json"))
image, enough = Image.open("photo.jpg"), how["reduce"]["enough"]
scale = max(scale for scale in (1, 2, 4, 8) if scale == 1 or min(image.size) // scale >= enough)
image.draft(None, (image.width // scale, image.height // scale))  # a JPEG is decoded smaller
image = ImageOps.exif_transpose(image).convert(how["mode"])
image = image.reduce(max(1, min(image.size) // enough))
width, height = (int(how["resize"]["shorter_side"] * side / min(image.size)) for side in image.size)
left, top = round((width - how["size"]) / 2), round((height - how["size"]) / 2)
image = image.resize((width, height), Image.Resampling[how["resize"]["interpolation"].upper()])
image = image.crop((left, top, left + how["size"], top + how["size"]))
pixels = np.array(image).reshape(1, how["size"], how["size"], -1).transpose(0, 3, 1, 2)  # uint8, NCHW"""

_FROM_ARRAY = """\
import json
import numpy as np

how = json.load(open("preprocessing.json"))
pixels = np.load("image.npy")  # uint8, (N, {channels}, {size}, {size}): Pillow has no images of so many channels"""

_NORMALIZED = """
mean, std = (np.array(how[name]).reshape(-1, 1, 1) for name in ("mean", "std"))
images = ((pixels / 255 - mean) / std).astype(np.float32)"""


def how_to_preprocess(how: Mapping[str, Any]) -> str:
    """Return a program that turns photo.jpg into `pixels` (uint8) and `images` (float32, normalized), both NCHW.

    how: the content of preprocessing.json.
    """
    return (_FROM_FILE if how["mode"] else _FROM_ARRAY.format(**how)) + _NORMALIZED


def torch_program(imports: str, call: str, argument: str = "images") -> str:
    """A program that gets a module by `call` and lets it encode `images` or `pixels`."""
    head = "\n".join(sorted(filter(None, ("import torch", imports)), key=lambda line: (line.startswith("from"), line)))
    return f"{head}\n\nencoder = {call}\nwith torch.no_grad():\n    features = encoder(torch.from_numpy({argument}))"


def graph_argument(entry: Mapping[str, Any]) -> str:
    """What a graph takes, `pixels` or `images`, by its entry in export.json."""
    return "pixels" if entry["takes"].startswith("uint8") else "images"


def graph_input(entry: Mapping[str, Any]) -> str:
    """Half a sentence about a graph that normalizes its input; "" for others."""
    return ", which takes uint8 `pixels` and normalizes them itself" if graph_argument(entry) == "pixels" else ""
