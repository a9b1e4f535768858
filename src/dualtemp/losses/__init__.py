"""Every loss of the paper: a scalar per anchor times a vector. As functions, and as modules with the same arguments."""

from dualtemp.losses.functions import (
    cross_entropy,
    decomposed,
    dual_temperature,
    equal_anchors,
    in_batch_weight,
    info_nce,
    negative_cosine,
    nt_xent,
    simple,
)
from dualtemp.losses.modules import (
    CrossEntropyLoss,
    DecomposedLoss,
    DualTemperatureLoss,
    EqualAnchorsLoss,
    InfoNCELoss,
    NegativeCosineLoss,
    NTXentLoss,
    SimpleLoss,
)

__all__ = [
    "CrossEntropyLoss",
    "DecomposedLoss",
    "DualTemperatureLoss",
    "EqualAnchorsLoss",
    "InfoNCELoss",
    "NTXentLoss",
    "NegativeCosineLoss",
    "SimpleLoss",
    "cross_entropy",
    "decomposed",
    "dual_temperature",
    "equal_anchors",
    "in_batch_weight",
    "info_nce",
    "negative_cosine",
    "nt_xent",
    "simple",
]
