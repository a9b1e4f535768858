"""The family of losses: a scalar per anchor times a vector; and two that need no negatives, to compare with.

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
    from dualtemp.losses.image_memory import ImageMemory, ImageTemperatures
    from dualtemp.losses.labeled_pairs import supervised_contrastive
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
    from dualtemp.losses.pair_modules import SupervisedContrastiveLoss, TwoTowersLoss
    from dualtemp.losses.temperature_schedule import AdaptiveTemperature, TemperatureSchedule
    from dualtemp.losses.tower_pairs import two_towers
    from dualtemp.losses.without_negatives import BarlowTwinsLoss, VICRegLoss, barlow_twins, vicreg

_HOME = {
    "AdaptiveTemperature": "temperature_schedule",
    "BarlowTwinsLoss": "without_negatives",
    "CrossEntropyLoss": "modules",
    "DecomposedLoss": "modules",
    "DualTemperatureLoss": "modules",
    "EqualAnchorsLoss": "modules",
    "ImageMemory": "image_memory",
    "ImageTemperatures": "image_memory",
    "InfoNCELoss": "modules",
    "NTXentLoss": "modules",
    "NegativeCosineLoss": "modules",
    "SimpleLoss": "modules",
    "SupervisedContrastiveLoss": "pair_modules",
    "TwoTowersLoss": "pair_modules",
    "TemperatureSchedule": "temperature_schedule",
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
    "supervised_contrastive": "labeled_pairs",
    "two_towers": "tower_pairs",
    "vicreg": "without_negatives",
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
    "NTXentLoss",
    "NegativeCosineLoss",
    "SimpleLoss",
    "SupervisedContrastiveLoss",
    "TemperatureSchedule",
    "TwoTowersLoss",
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
    "supervised_contrastive",
    "two_towers",
    "vicreg",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
