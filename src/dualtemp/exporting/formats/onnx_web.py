"""onnx-web: a graph that takes a canvas's pixels as they are, and a module of JavaScript that feeds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dualtemp.exporting.export_format import ExportFormat, LoadingText
from dualtemp.exporting.formats import onnx

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from dualtemp.exporting.exported_encoder import ExportedEncoder

GRAPH, SCRIPT = "model.web.onnx", "encoder.js"
TAKES = "uint8 RGBA pixels, (N, height, width, 4)"
_SCRIPT = """\
// Features of an image in a browser, by onnxruntime-web: import it as `ort` and hand it over.
//   const encode = await load(ort, "{graph}");
//   const features = await encode(image);  // an <img>, a canvas or an ImageBitmap -> Float32Array of {width}
const SIZE = {size}, SHORTER = {shorter};

export async function load(ort, url = new URL("{graph}", import.meta.url).href, options = {{}}) {{
  const run = await open(ort, url, options);
  return async (image) => (await run(image)).features.data;
}}

async function open(ort, url, options) {{
  const session = await ort.InferenceSession.create(url, options);
  return (image) => session.run({{ pixels: new ort.Tensor("uint8", prepare(image), [1, SIZE, SIZE, 4]) }});
}}

// The central square of the image, its shorter side resized to SHORTER pixels: RGBA, row by row.
export function prepare(image) {{
  const width = image.naturalWidth || image.width, height = image.naturalHeight || image.height;
  const side = SIZE / SHORTER * Math.min(width, height);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIZE;
  const context = canvas.getContext("2d", {{ willReadFrequently: true }});
  context.fillStyle = "white";  // behind transparent pixels
  context.fillRect(0, 0, SIZE, SIZE);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, (width - side) / 2, (height - side) / 2, side, side, 0, 0, SIZE, SIZE);
  return new Uint8Array(context.getImageData(0, 0, SIZE, SIZE).data.buffer);
}}
"""
_CLASSIFIES = """`loadClassifier(ort)` gives the classes too: `const { label, probability } = await classify(image)`.

"""
_CLASSIFYING = """
// The class of an image, or "none of these"; the likeliest class in any case, and its calibrated probability.
//   const classify = await loadClassifier(ort, "{graph}");
//   const {{ label, best, probability, probabilities, features }} = await classify(image);
export const CLASSES = {classes}, THRESHOLD = {threshold};

export async function loadClassifier(ort, url = new URL("{graph}", import.meta.url).href, options = {{}}) {{
  const run = await open(ort, url, options);
  return async (image) => {{
    const found = await run(image);
    const probabilities = found.probabilities.data, probability = Math.max(...probabilities);
    const best = CLASSES[probabilities.indexOf(probability)];
    const label = found.novelty.data[0] <= THRESHOLD ? best : "none of these";
    return {{ label, best, probability, probabilities, features: found.features.data }};
  }};
}}
"""


def write(encoder: ExportedEncoder, folder: Path) -> None:
    """Write the graph, in one file and of operations of ONNX's own domain alone, and the script."""
    graph = encoder.answering(encoder.canvas_graph())
    onnx.write_graph(graph, _rgba(encoder.pixels(2)), folder / GRAPH, "pixels", encoder.outputs)
    onnx.describe_answers(encoder, folder / GRAPH)
    views, made = encoder.views, encoder.classifier
    text = _SCRIPT.format(
        graph=GRAPH, size=views.size, shorter=views.shorter_side, width=encoder.recipe["num_features"]
    )
    if made is not None:
        threshold = "Infinity" if made.threshold == float("inf") else repr(made.threshold)
        text += _CLASSIFYING.format(graph=GRAPH, classes=json.dumps(made.classes), threshold=threshold)
    (folder / SCRIPT).write_text(text, encoding="utf-8")


def read(encoder: ExportedEncoder, folder: Path) -> Callable[[Tensor], Tensor]:
    """Run the graph by onnxruntime, of which onnxruntime-web is a build; refuse operations of other domains."""
    import onnx as library

    graph = library.load(str(folder / GRAPH))
    foreign = sorted({node.op_type for node in graph.graph.node if node.domain not in ("", "ai.onnx")})
    if foreign or graph.functions:
        raise ValueError(f"operations that a browser has not: {', '.join(foreign) or 'functions'}")
    return onnx.run_graph(_rgba, folder / GRAPH, "pixels", encoder.outputs[:2])


def _rgba(pixels: Tensor) -> Tensor:
    """uint8 (N, C, H, W) of one or three channels -> (N, H, W, 4), opaque."""
    import torch

    color = pixels.expand(-1, 3, -1, -1)
    return torch.cat((color, torch.full_like(color[:, :1], 255)), 1).permute(0, 2, 3, 1).contiguous()


def refusal(encoder: ExportedEncoder) -> str:
    """A canvas is gray or in color, and has 8 bits."""
    if encoder.views.levels is not None and encoder.channels in (1, 3):
        return "a canvas has 8 bits, and the run reads gray images of more by its levels"
    return "" if encoder.channels in (1, 3) else f"a canvas has no images of {encoder.channels} channels"


def how_to_load(entry: Mapping[str, Any], recipe: Mapping[str, Any], how: Mapping[str, Any]) -> list[LoadingText]:
    """By onnxruntime-web in a browser; elsewhere by onnxruntime."""
    size = how["size"]
    text = (
        f"`{GRAPH}` (opset {entry['opset']}, one file) takes a canvas's pixels, uint8 RGBA (N, {size}, {size}, 4), and "
        f"normalizes them itself; `{SCRIPT}` prepares an image and calls onnxruntime-web:\n\n"
        f'```js\nimport * as ort from "onnxruntime-web";\nimport {{ load }} from "./{SCRIPT}";\n\n'
        "const encode = await load(ort);\n"
        'const features = await encode(document.querySelector("img"));\n```\n\n'
        f"{_CLASSIFIES if 'outputs' in entry else ''}"
        "A browser resizes images in its own way: features of images that are not of this size differ a little from "
        "those of training. Outside of a browser:"
    )
    program = (
        "import numpy as np\nimport onnxruntime\n\n"
        "color = np.broadcast_to(pixels, (len(pixels), 3, *pixels.shape[2:]))\n"
        "rgba = np.concatenate((color, np.full_like(color[:, :1], 255)), 1).transpose(0, 2, 3, 1)\n"
        f'encoder = onnxruntime.InferenceSession("{GRAPH}")\n'
        'features = encoder.run(None, {"pixels": np.ascontiguousarray(rgba)})[0]'
    )
    return [LoadingText("onnxruntime-web", text, program)]


FORMAT = ExportFormat(
    name="onnx-web",
    files=(GRAPH, SCRIPT),
    write=write,
    read=read,
    how_to_load=how_to_load,
    refusal=refusal,
    packages=("onnx", "onnxscript", "onnxruntime"),
    extra="onnx",
    is_graph=True,
    in_all=False,
    classifies=True,
    facts={"opset": onnx.OPSET, "takes": TAKES},
)
