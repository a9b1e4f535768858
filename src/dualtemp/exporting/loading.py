"""Programs that load an export and prepare images for it, without dualtemp; the model card shows them."""

from typing import Any

# Architectures of timm whose parameters torchvision names alike.
TORCHVISION = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")

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

_NORMALISED = """
mean, std = (np.array(how[name]).reshape(-1, 1, 1) for name in ("mean", "std"))
images = ((pixels / 255 - mean) / std).astype(np.float32)"""


def how_to_preprocess(how: dict[str, Any]) -> str:
    """A program that turns photo.jpg into `pixels` (uint8) and `images` (float32, normalised), both NCHW.

    how: what preprocessing.json holds.
    """
    return (_FROM_FILE if how["mode"] else _FROM_ARRAY.format(**how)) + _NORMALISED


def how_to_load(
    formats: dict[str, dict[str, Any]], recipe: dict[str, Any], how: dict[str, Any]
) -> list[tuple[str, str, str]]:
    """Title, a sentence, and a program that turns `images` into `features`, for each way to load what is there.

    formats: of export.json; recipe: of `describe_backbone`; how: what preprocessing.json holds.
    """
    found = []
    if "safetensors" in formats:
        text = "`model.safetensors` holds the weights, `model.py` builds the module and loads them."
        found.append(("torch: model.py", text, _torch("from model import load", 'load("model.safetensors")')))
        if recipe["model"] in TORCHVISION and recipe["library"] == "timm":
            found.append(_torchvision(recipe, how))
    if "timm" in formats:
        text = "`config.json` and `model.safetensors` are what timm (1.0.16 or newer) and the Hugging Face hub expect."
        call = 'timm.create_model("local-dir:.", pretrained=True).eval()'
        found.append(("timm", text, _torch("import timm", call)))
    if "onnx" in formats:
        entry = formats["onnx"]
        text = f"`model.onnx`, opset {entry['opset']}, any number of images at once{_takes(entry)}."
        program = (
            "import onnxruntime\n\n"
            'encoder = onnxruntime.InferenceSession("model.onnx")\n'
            f'features = encoder.run(None, {{"images": {_argument(entry)}}})[0]'
        )
        found.append(("onnxruntime", text, program))
    if "torch-export" in formats:
        entry = formats["torch-export"]
        text = f"`model.pt2`, a graph of torch.export for the CPU, any number of images at once{_takes(entry)}."
        call = 'torch.export.load("model.pt2").module()'
        found.append(("torch.export", text, _torch("", call, _argument(entry))))
    return found


def _torchvision(recipe: dict[str, Any], how: dict[str, Any]) -> tuple[str, str, str]:
    changes = {**recipe["replaced"], "fc": "nn.Identity()"}
    if "conv1" not in changes and how["channels"] != 3:
        changes["conv1"] = f"nn.Conv2d({how['channels']}, 64, 7, 2, 3, bias=False)"
    lines = [f"encoder = torchvision.models.{recipe['model']}()"]
    lines += [f"encoder.{place} = {module}" for place, module in changes.items()]
    lines += ['encoder.load_state_dict(load_file("model.safetensors"))']
    program = "\n".join(
        [
            "import torch",
            "import torchvision",
            "from safetensors.torch import load_file",
            "from torch import nn",
            "",
            *lines,
            "with torch.no_grad():",
            "    features = encoder.eval()(torch.from_numpy(images))",
        ]
    )
    return "torchvision", "The same weights in torchvision's module.", program


def _torch(imports: str, call: str, argument: str = "images") -> str:
    head = "import torch\n" + (f"{imports}\n" if imports else "")
    return (
        f"{head}\nencoder = {call}\nwith torch.no_grad():\n    features = encoder(torch.from_numpy({argument}))"
    ).replace("import torch\nimport timm", "import timm\nimport torch")


def _takes(entry: dict[str, Any]) -> str:
    return ", which takes uint8 `pixels` and normalises them itself" if _argument(entry) == "pixels" else ""


def _argument(entry: dict[str, Any]) -> str:
    return "pixels" if entry["takes"].startswith("uint8") else "images"
