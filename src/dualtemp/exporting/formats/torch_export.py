"""torch-export: a graph for torch alone, without the classes that built it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dualtemp.exporting.export_format import ExportFormat, LoadingText
from dualtemp.exporting.loading import graph_argument, graph_input, torch_program

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from dualtemp.exporting.exported_encoder import ExportedEncoder

GRAPH = "model.pt2"


def write(encoder: ExportedEncoder, folder: Path) -> None:
    """Write model.pt2, for any number of images at once."""
    import torch

    batch = torch.export.Dim("batch")
    example = (encoder.graph_input(encoder.pixels(2)),)
    program = torch.export.export(encoder.graph(), example, dynamic_shapes=({0: batch},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # the paths of this machine
    torch.export.save(program, folder / GRAPH)


def read(encoder: ExportedEncoder, folder: Path) -> Callable[[Tensor], Tensor]:
    """Load the graph by torch."""
    import torch

    module = torch.export.load(folder / GRAPH).module()
    return lambda pixels: module(encoder.graph_input(pixels))


def how_to_load(entry: Mapping[str, Any], recipe: Mapping[str, Any], how: Mapping[str, Any]) -> list[LoadingText]:
    """By `torch.export.load`."""
    text = f"`{GRAPH}`, a graph of torch.export for the CPU, any number of images at once{graph_input(entry)}."
    program = torch_program("", f'torch.export.load("{GRAPH}").module()', graph_argument(entry))
    return [LoadingText("torch.export", text, program)]


FORMAT = ExportFormat(
    name="torch-export", files=(GRAPH,), write=write, read=read, how_to_load=how_to_load, is_graph=True
)
