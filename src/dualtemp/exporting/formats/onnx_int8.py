"""onnx-int8: the graph with weights and activations in 8 bits, for onnxruntime; a quarter of the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dualtemp.exporting.export_format import ExportFormat, LoadingText
from dualtemp.exporting.formats import onnx
from dualtemp.exporting.loading import graph_input

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from dualtemp.exporting.exported_encoder import ExportedEncoder

GRAPH = "model.int8.onnx"
BATCH = 32


def write(encoder: ExportedEncoder, folder: Path) -> None:
    """Write model.int8.onnx: quantized statically, weights by channel, ranges of activations from real images."""
    import logging
    import tempfile
    from pathlib import Path

    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter(encoder.calibration().split(BATCH))

        def get_next(self) -> dict[str, Any] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            batch = next(self.batches, None)
            return None if batch is None else {"images": encoder.graph_input(batch).numpy()}

    logging.getLogger().disabled, before = True, logging.getLogger().disabled  # it advises on the root logger
    try:
        with tempfile.TemporaryDirectory() as place:
            onnx.write_graph(encoder.graph(), encoder.graph_input(encoder.pixels(2)), Path(place) / onnx.GRAPH)
            folded = Path(place) / "folded.onnx"  # batch norm becomes part of the convolutions
            quant_pre_process(str(Path(place) / onnx.GRAPH), str(folded), skip_symbolic_shape=True)
            quantize_static(
                str(folded),
                str(folder / GRAPH),
                Images(),
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                weight_type=QuantType.QInt8,
                activation_type=QuantType.QUInt8,
            )
    finally:
        logging.getLogger().disabled = before


def read(encoder: ExportedEncoder, folder: Path) -> Callable[[Tensor], Tensor]:
    """Run the graph by onnxruntime."""
    return onnx.run_graph(encoder.graph_input, folder / GRAPH)


def refusal(encoder: ExportedEncoder) -> str:
    """Refuse to guess ranges of activations without an image."""
    return "" if encoder.sample is not None else "needs images to calibrate with: give --data FOLDER|SET|FILE.npz"


def how_to_load(entry: Mapping[str, Any], recipe: Mapping[str, Any], how: Mapping[str, Any]) -> list[LoadingText]:
    """By onnxruntime."""
    text = (
        f"`{GRAPH}`, opset {entry['opset']}, 8-bit weights and activations, any number of images at once"
        f"{graph_input(entry)}. Not the same features: on {entry['compared_on']} images that were not calibrated with, "
        f"their mean cosine with the float encoder's is {entry['cosine']:.4f} (lowest {entry['lowest_cosine']:.4f}), "
        f"and {entry['same_neighbor']:.0%} of the images keep their nearest neighbor."
    )
    return [LoadingText("onnxruntime, 8 bits", text, onnx.onnxruntime_program(GRAPH, entry))]


FORMAT = ExportFormat(
    name="onnx-int8",
    files=(GRAPH,),
    write=write,
    read=read,
    how_to_load=how_to_load,
    refusal=refusal,
    packages=("onnx", "onnxscript", "onnxruntime"),
    extra="onnx",
    is_graph=True,
    is_approximate=True,
    in_all=False,
    facts={"opset": onnx.OPSET},
)
