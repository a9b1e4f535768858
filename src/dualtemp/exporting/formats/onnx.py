"""onnx: a graph for onnxruntime and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dualtemp.exporting.export_format import ExportFormat, LoadingText
from dualtemp.exporting.loading import graph_argument, graph_input

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from dualtemp.exporting.exported_encoder import ExportedEncoder

GRAPH = "model.onnx"
OPSET = 18  # onnxruntime has it since 1.14


def write(encoder: ExportedEncoder, folder: Path) -> None:
    """Write model.onnx, for any number of images at once."""
    import torch

    torch.onnx.export(
        encoder.graph(),
        (encoder.graph_input(encoder.pixels(2)),),
        str(folder / GRAPH),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        input_names=["images"],
        output_names=["features"],
        opset_version=OPSET,
        external_data=False,
        verbose=False,
    )


def read(encoder: ExportedEncoder, folder: Path) -> Callable[[Tensor], Tensor]:
    """Run the graph by onnxruntime."""
    return run_graph(encoder.graph_input, folder / GRAPH)


def run_graph(prepare: Callable[[Tensor], Tensor], path: Path, name: str = "images") -> Callable[[Tensor], Tensor]:
    """A function from uint8 pixels to the features of a graph, whose input of this name `prepare` makes of them."""
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def features(pixels: Tensor) -> Tensor:
        (found,) = session.run(None, {name: prepare(pixels).numpy()})
        return torch.from_numpy(found)

    return features


def how_to_load(entry: Mapping[str, Any], recipe: Mapping[str, Any], how: Mapping[str, Any]) -> list[LoadingText]:
    """By onnxruntime."""
    text = f"`{GRAPH}`, opset {entry['opset']}, any number of images at once{graph_input(entry)}."
    program = (
        "import onnxruntime\n\n"
        f'encoder = onnxruntime.InferenceSession("{GRAPH}")\n'
        f'features = encoder.run(None, {{"images": {graph_argument(entry)}}})[0]'
    )
    return [LoadingText("onnxruntime", text, program)]


FORMAT = ExportFormat(
    name="onnx",
    files=(GRAPH,),
    write=write,
    read=read,
    how_to_load=how_to_load,
    packages=("onnx", "onnxscript", "onnxruntime"),
    extra="onnx",
    is_graph=True,
    facts={"opset": OPSET},
)
