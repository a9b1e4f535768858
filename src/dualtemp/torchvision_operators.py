"""Lets torchvision be imported beside a torch without CUDA.

torchvision's wheel may carry a compiled library that asks for CUDA. Where that library cannot be loaded, importing
torchvision (or timm, torchmetrics, lightly, which import it) fails because two operators have no schema. Their schemas
are enough: nothing here calls them.
"""

import ctypes
import importlib.util
import sys
from pathlib import Path

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
# A Library takes its operators with it when it is collected: this reference keeps them for the life of the process.
_declared: list[torch.library.Library] = []


def declare_missing_operators() -> None:
    """Declare torchvision's box operators if its compiled library cannot be loaded. Call before importing torchvision.

    Does nothing with a CUDA torch, a loadable library, an already imported torchvision, no torchvision, or when called
    a second time: declaring an operator twice would abort the process.
    """
    if _declared or torch.version.cuda is not None or "torchvision" in sys.modules:
        return
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _loads(Path(spec.origin).parent):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not _exists(name):
            library.define(name + _SCHEMA)
    _declared.append(library)


def _loads(package: Path) -> bool:
    """Whether the compiled library of this torchvision can be loaded; loading it a second time is harmless."""
    candidates = [path for pattern in ("_C*.so", "_C*.pyd") for path in package.glob(pattern)]
    try:
        for path in candidates:
            ctypes.CDLL(str(path))
    except OSError:
        return False
    return bool(candidates)


def _exists(name: str) -> bool:
    """Whether somebody else has declared the operator already."""
    try:
        getattr(torch.ops.torchvision, name)
    except (AttributeError, RuntimeError):
        return False
    return True
