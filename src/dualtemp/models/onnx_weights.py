"""The tensors of an ONNX file, in the order in which its graph uses them, with the kinds that torch would name."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dualtemp.errors import UserError
from dualtemp.models.weights_matching import KINDS

# What the inputs of an operation are after the images.
OPERANDS = {
    "Conv": ("weight", "bias"),
    "Gemm": ("weight", "bias"),
    "MatMul": ("weight",),
    "BatchNormalization": ("weight", "bias", "running_mean", "running_var"),
    "LayerNormalization": ("weight", "bias"),
}


def onnx_weights(path: Path) -> dict[str, Tensor]:
    """Read the floating-point tensors of an ONNX file onto the CPU; matrices lie as in torch.nn.Linear.

    A tensor whose name does not tell its kind is called after the operation that uses it: "Conv_3.weight".
    """
    if find_spec("onnx") is None:
        raise UserError(f"{path}: reading ONNX needs a package that is not installed: pip install 'dualtemp[onnx]'")
    import onnx
    from onnx import numpy_helper

    try:
        graph = onnx.load(str(path)).graph
        content = {each.name: numpy_helper.to_array(each, base_dir=str(path.parent)) for each in graph.initializer}
    except Exception as error:  # damaged protocol buffers raise whatever their bytes happen to mean
        raise UserError(f"{path}: not a whole ONNX file ({type(error).__name__}); fetch it again.") from error
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for i, node in enumerate(graph.node):
        for place, name in enumerate(node.input):
            if name in content and name not in used and content[name].dtype.kind == "f":
                used.add(name)
                kinds = OPERANDS.get(node.op_type, ())
                kind = kinds[place - 1] if 1 <= place <= len(kinds) else None
                known = name.rpartition(".")[2] in KINDS or kind is None
                tensor = torch.from_numpy(content[name].copy())
                found[name if known else f"{node.op_type}_{i}.{kind}"] = (
                    tensor.T if _is_transposed(node, kind) else tensor
                )
    if not found:
        raise UserError(f"{path}: holds no tensors; give an ONNX file with its weights.")
    return found


def _is_transposed(node: Any, kind: str | None) -> bool:
    """Whether a matrix lies as (inputs, outputs), other than in torch."""
    if kind != "weight" or node.op_type not in ("Gemm", "MatMul"):
        return False
    return not any(each.name == "transB" and each.i for each in node.attribute)
