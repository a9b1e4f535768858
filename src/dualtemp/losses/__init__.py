"""Every loss of the paper: a scalar per anchor times a vector; and two that need no negatives, to compare with.

As functions, and as modules with the same arguments.

Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.losses.functional import (
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
    from dualtemp.losses.without_negatives import BarlowTwinsLoss, VICRegLoss, barlow_twins, vicreg

_HOME = {
    "BarlowTwinsLoss": "without_negatives",
    "CrossEntropyLoss": "modules",
    "DecomposedLoss": "modules",
    "DualTemperatureLoss": "modules",
    "EqualAnchorsLoss": "modules",
    "InfoNCELoss": "modules",
    "NTXentLoss": "modules",
    "NegativeCosineLoss": "modules",
    "SimpleLoss": "modules",
    "VICRegLoss": "without_negatives",
    "barlow_twins": "without_negatives",
    "cross_entropy": "functional",
    "decomposed": "functional",
    "dual_temperature": "functional",
    "equal_anchors": "functional",
    "in_batch_weight": "functional",
    "info_nce": "functional",
    "negative_cosine": "functional",
    "nt_xent": "functional",
    "simple": "functional",
    "vicreg": "without_negatives",
}

__all__ = [
    "BarlowTwinsLoss",
    "CrossEntropyLoss",
    "DecomposedLoss",
    "DualTemperatureLoss",
    "EqualAnchorsLoss",
    "InfoNCELoss",
    "NTXentLoss",
    "NegativeCosineLoss",
    "SimpleLoss",
    "VICRegLoss",
    "barlow_twins",
    "cross_entropy",
    "decomposed",
    "dual_temperature",
    "equal_anchors",
    "in_batch_weight",
    "info_nce",
    "negative_cosine",
    "nt_xent",
    "simple",
    "vicreg",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
