"""Contrastive learning with two temperatures.

`tau_alpha` weighs the negatives within an anchor, `tau_beta` weighs the anchors against each other.
Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.former_modules import find_former_modules
from dualtemp.lazy import lazily

__version__ = "1.0.0"

if TYPE_CHECKING:
    from dualtemp.api import (
        analyze,
        embed,
        evaluate,
        export,
        index,
        judge,
        near_duplicates,
        predict,
        resume,
        search,
        select,
        train,
    )
    from dualtemp.losses import (
        AdaptiveTemperature,
        BarlowTwinsLoss,
        CrossEntropyLoss,
        DecomposedLoss,
        DualTemperatureLoss,
        EqualAnchorsLoss,
        ImageMemory,
        ImageTemperatures,
        InfoNCELoss,
        NegativeCosineLoss,
        NTXentLoss,
        SimpleLoss,
        SupervisedContrastiveLoss,
        TemperatureSchedule,
        TwoTowersLoss,
        VICRegLoss,
    )
    from dualtemp.models.dictionary import KeyDictionary

_HOME = {
    "KeyDictionary": "models.dictionary",
    "AdaptiveTemperature": "losses",
    "BarlowTwinsLoss": "losses",
    "CrossEntropyLoss": "losses",
    "DecomposedLoss": "losses",
    "DualTemperatureLoss": "losses",
    "EqualAnchorsLoss": "losses",
    "ImageMemory": "losses",
    "ImageTemperatures": "losses",
    "InfoNCELoss": "losses",
    "NegativeCosineLoss": "losses",
    "NTXentLoss": "losses",
    "SimpleLoss": "losses",
    "SupervisedContrastiveLoss": "losses",
    "TemperatureSchedule": "losses",
    "TwoTowersLoss": "losses",
    "VICRegLoss": "losses",
    "analyze": "api",
    "embed": "api",
    "evaluate": "api",
    "export": "api",
    "index": "api",
    "judge": "api",
    "near_duplicates": "api",
    "predict": "api",
    "resume": "api",
    "search": "api",
    "select": "api",
    "train": "api",
}

__all__ = [
    "AdaptiveTemperature",
    "BarlowTwinsLoss",
    "CrossEntropyLoss",
    "DecomposedLoss",
    "DualTemperatureLoss",
    "EqualAnchorsLoss",
    "ImageMemory",
    "ImageTemperatures",
    "InfoNCELoss",
    "KeyDictionary",
    "NTXentLoss",
    "NegativeCosineLoss",
    "SimpleLoss",
    "SupervisedContrastiveLoss",
    "TemperatureSchedule",
    "TwoTowersLoss",
    "VICRegLoss",
    "__version__",
    "analyze",
    "embed",
    "evaluate",
    "export",
    "index",
    "judge",
    "near_duplicates",
    "predict",
    "resume",
    "search",
    "select",
    "train",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
find_former_modules()
