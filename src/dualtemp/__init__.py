"""Contrastive learning with two temperatures.

`tau_alpha` weighs the negatives within an anchor, `tau_beta` weighs the anchors against each other.
Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dualtemp.api import resume, train
    from dualtemp.encoder.embed import embed
    from dualtemp.evaluation.evaluate import evaluate
    from dualtemp.exporting.export import export
    from dualtemp.losses import (
        CrossEntropyLoss,
        DecomposedLoss,
        DualTemperatureLoss,
        EqualAnchorsLoss,
        InfoNCELoss,
        NegativeCosineLoss,
        NTXentLoss,
        SimpleLoss,
    )
    from dualtemp.models.dictionary import KeyDictionary

_HOME = {
    "KeyDictionary": "models.dictionary",
    "CrossEntropyLoss": "losses",
    "DecomposedLoss": "losses",
    "DualTemperatureLoss": "losses",
    "EqualAnchorsLoss": "losses",
    "InfoNCELoss": "losses",
    "NegativeCosineLoss": "losses",
    "NTXentLoss": "losses",
    "SimpleLoss": "losses",
    "embed": "encoder.embed",
    "evaluate": "evaluation.evaluate",
    "export": "exporting.export",
    "resume": "api",
    "train": "api",
}

__all__ = [
    "CrossEntropyLoss",
    "DecomposedLoss",
    "DualTemperatureLoss",
    "EqualAnchorsLoss",
    "InfoNCELoss",
    "KeyDictionary",
    "NTXentLoss",
    "NegativeCosineLoss",
    "SimpleLoss",
    "__version__",
    "embed",
    "evaluate",
    "export",
    "resume",
    "train",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
