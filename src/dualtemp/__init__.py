"""Contrastive learning with two temperatures.

`tau_alpha` weighs the negatives within an anchor, `tau_beta` weighs the anchors against each other.
Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.former_modules import find_former_modules
from dualtemp.lazy import lazily

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dualtemp.api import analyze, embed, evaluate, export, near_duplicates, resume, search, train
    from dualtemp.losses import (
        BarlowTwinsLoss,
        CrossEntropyLoss,
        DecomposedLoss,
        DualTemperatureLoss,
        EqualAnchorsLoss,
        InfoNCELoss,
        NegativeCosineLoss,
        NTXentLoss,
        SimpleLoss,
        VICRegLoss,
    )
    from dualtemp.models.dictionary import KeyDictionary

_HOME = {
    "KeyDictionary": "models.dictionary",
    "BarlowTwinsLoss": "losses",
    "CrossEntropyLoss": "losses",
    "DecomposedLoss": "losses",
    "DualTemperatureLoss": "losses",
    "EqualAnchorsLoss": "losses",
    "InfoNCELoss": "losses",
    "NegativeCosineLoss": "losses",
    "NTXentLoss": "losses",
    "SimpleLoss": "losses",
    "VICRegLoss": "losses",
    "analyze": "api",
    "embed": "api",
    "evaluate": "api",
    "export": "api",
    "near_duplicates": "api",
    "resume": "api",
    "search": "api",
    "train": "api",
}

__all__ = [
    "BarlowTwinsLoss",
    "CrossEntropyLoss",
    "DecomposedLoss",
    "DualTemperatureLoss",
    "EqualAnchorsLoss",
    "InfoNCELoss",
    "KeyDictionary",
    "NTXentLoss",
    "NegativeCosineLoss",
    "SimpleLoss",
    "VICRegLoss",
    "__version__",
    "analyze",
    "embed",
    "evaluate",
    "export",
    "near_duplicates",
    "resume",
    "search",
    "train",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
find_former_modules()
