"""onnx: a graph for onnxruntime and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dualtemp.exporting.export_format import ExportFormat, LoadingText
from dualtemp.exporting.loading import graph_argument, graph_input

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor, nn

    from dualtemp.exporting.exported_encoder import ExportedEncoder

GRAPH = "model.onnx"
OPSET = 18  # onnxruntime has it since 1.14


def write(encoder: ExportedEncoder, folder: Path) -> None:
    """Write model.onnx, for any number of images at once, with the classifier if there is one."""
    example = encoder.graph_input(encoder.pixels(2))
    write_graph(encoder.answering(encoder.graph()), example, folder / GRAPH, "images", encoder.outputs)
    describe_answers(encoder, folder / GRAPH)


def write_graph(
    module: nn.Module, example: Tensor, path: Path, name: str = "images", outputs: tuple[str, ...] = ("features",)
) -> None:
    """Write a module as a graph in one file, for any number of images at once; name: of its input."""
    import torch

    program = torch.onnx.export(
        module,
        (example,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        input_names=[name],
        output_names=list(outputs),
        opset_version=OPSET,
        verbose=False,
    )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.pop("pkg.torch.onnx.stack_trace", None)  # the paths of this machine
    program.save(str(path), external_data=False)


def describe_answers(encoder: ExportedEncoder, path: Path) -> None:
    """Write the classifier's names, and the novelty above which an image is none of them, into a graph's metadata."""
    if encoder.classifier is None:
        return
    import json

    import onnx as library

    graph = library.load(str(path))
    facts = {"classes": json.dumps(encoder.classifier.classes), "threshold": str(encoder.classifier.threshold)}
    library.helper.set_model_props(graph, {**{each.key: each.value for each in graph.metadata_props}, **facts})
    library.save(graph, str(path))


def read(encoder: ExportedEncoder, folder: Path) -> Callable[[Tensor], Tensor]:
    """Run the graph by onnxruntime."""
    return run_graph(encoder.graph_input, folder / GRAPH, outputs=encoder.outputs[:2])


def run_graph(
    prepare: Callable[[Tensor], Tensor], path: Path, name: str = "images", outputs: tuple[str, ...] = ("features",)
) -> Callable[[Tensor], Tensor]:
    """A function from uint8 pixels to these outputs of a graph, side by side.

    name: of the graph's input, which `prepare` makes of the pixels.
    """
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def features(pixels: Tensor) -> Tensor:
        found = session.run(outputs, {name: prepare(pixels).numpy()})
        return torch.cat([torch.from_numpy(each) for each in found], 1)

    return features


def how_to_load(entry: Mapping[str, Any], recipe: Mapping[str, Any], how: Mapping[str, Any]) -> list[LoadingText]:
    """By onnxruntime."""
    text = f"`{GRAPH}`, opset {entry['opset']}, any number of images at once{graph_input(entry)}."
    if "outputs" not in entry:
        return [LoadingText("onnxruntime", text, onnxruntime_program(GRAPH, entry))]
    text += (
        " The classifier is part of it: `probabilities` (N, classes) are calibrated, and an image whose `novelty` is "
        "above the threshold is none of the classes. Their names and the threshold are in the file's metadata."
    )
    program = (
        "import json\nimport onnxruntime\n\n"
        f'encoder = onnxruntime.InferenceSession("{GRAPH}")\n'
        f'{", ".join(entry["outputs"])} = encoder.run(None, {{"images": {graph_argument(entry)}}})\n'
        "about = encoder.get_modelmeta().custom_metadata_map\n"
        'classes, threshold = json.loads(about["classes"]), float(about["threshold"])\n'
        "best = [classes[i] for i in probabilities.argmax(1)]\n"
        'answers = [name if far <= threshold else "none of these" for name, far in zip(best, novelty)]'
    )
    return [LoadingText("onnxruntime", text, program)]


def onnxruntime_program(graph: str, entry: Mapping[str, Any]) -> str:
    """A program that lets onnxruntime encode `images` or `pixels` by a graph."""
    return (
        "import onnxruntime\n\n"
        f'encoder = onnxruntime.InferenceSession("{graph}")\n'
        f'features = encoder.run(None, {{"images": {graph_argument(entry)}}})[0]'
    )


FORMAT = ExportFormat(
    name="onnx",
    files=(GRAPH,),
    write=write,
    read=read,
    how_to_load=how_to_load,
    packages=("onnx", "onnxscript", "onnxruntime"),
    extra="onnx",
    is_graph=True,
    classifies=True,
    facts={"opset": OPSET},
)
