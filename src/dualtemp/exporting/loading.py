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

_CONVERT = 'image = ImageOps.exif_transpose(image).convert(how["mode"])'

_CONVERT_DEEP = """\
image = ImageOps.exif_transpose(image)
if image.mode[0] in "IF":  # gray of more than 8 bits
    ((low, high),), values = how["levels"], np.asarray(image).astype(np.float32)
    image = Image.fromarray(((values - low) * (255 / (high - low))).round().clip(0, 255).astype(np.uint8))
image = image.convert(how["mode"])"""

_FROM_ARRAY = """\
import json
import numpy as np

how = json.load(open("preprocessing.json"))
pixels = np.load("image.npy")  # uint8, (N, {channels}, {size}, {size}): Pillow has no images of so many channels"""

_FROM_STACK = """\
import json
import numpy as np

how = json.load(open("preprocessing.json"))
values = np.load("image.npy")  # as its file stores them, (N, {channels}, {size}, {size})
low, high = np.array(how["levels"], np.float32).T.reshape(2, 1, -1, 1, 1)
pixels = ((values.astype(np.float32) - low) * (255 / (high - low))).round().clip(0, 255).astype(np.uint8)"""

_NORMALIZED = """
mean, std = (np.array(how[name]).reshape(-1, 1, 1) for name in ("mean", "std"))
images = ((pixels / 255 - mean) / std).astype(np.float32)"""


_CLASSIFIED = """\
import json
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

parts, x = load_file("{file}"), np.asarray(features)
about = json.loads(safe_open("{file}", "np").metadata()["dualtemp"])
logits = (x - parts["mean"]) / parts["scale"] @ parts["weight"].T + parts["bias"]
top = logits.max(1, keepdims=True)
p = np.exp((logits - top) / about["temperature"])
probabilities = p / p.sum(1, keepdims=True)  # calibrated
energy = -top[:, 0] - np.log(np.exp(logits - top).sum(1))
near = np.sort(x / np.linalg.norm(x, axis=1, keepdims=True) @ parts["bank"].T, 1)[:, -5:]
far = (np.stack([energy, 1 - near.mean(1)], 1) - parts["spread"][0]) / parts["spread"][1]
known = far.sum(1) <= (np.inf if about["threshold"] is None else about["threshold"])
answers = [about["classes"][i] if k else "none of these" for i, k in zip(probabilities.argmax(1), known)]"""


def how_to_classify(file: str) -> str:
    """Return a program that turns `features` (N, F) into `probabilities` (N, C) and `answers`, with this classifier."""
    return _CLASSIFIED.format(file=file)


def how_to_preprocess(how: Mapping[str, Any]) -> str:
    """Return a program that turns photo.jpg into `pixels` (uint8) and `images` (float32, normalized), both NCHW.

    how: the content of preprocessing.json.
    """
    if how["mode"]:
        return (_FROM_FILE.replace(_CONVERT, _CONVERT_DEEP) if how.get("levels") else _FROM_FILE) + _NORMALIZED
    return (_FROM_STACK if "levels" in how else _FROM_ARRAY).format(**how) + _NORMALIZED


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
