"""Contrastive learning with two temperatures.

`tau_alpha` weighs the negatives within an anchor, `tau_beta` weighs the anchors against each other.
Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dualtemp.dictionary import KeyDictionary
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
    from dualtemp.training.run import resume, train

_HOME = {
    "KeyDictionary": "dictionary",
    "CrossEntropyLoss": "losses",
    "DecomposedLoss": "losses",
    "DualTemperatureLoss": "losses",
    "EqualAnchorsLoss": "losses",
    "InfoNCELoss": "losses",
    "NegativeCosineLoss": "losses",
    "NTXentLoss": "losses",
    "SimpleLoss": "losses",
    "resume": "training.run",
    "train": "training.run",
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
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'dualtemp' has no attribute {name!r}")
    return getattr(import_module(f"dualtemp.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
