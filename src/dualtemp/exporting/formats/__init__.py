"""The export formats, one file each: `exporting/export_format.py` says what one is and finds them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # found by listing this folder; named for readers and tools that follow imports
    from dualtemp.exporting.formats import onnx, onnx_int8, onnx_web, safetensors, timm, torch_export  # noqa: F401
