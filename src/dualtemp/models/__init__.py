"""Encoders and what hangs on them: backbones, heads, momentum copies, weights files.

Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.models.backbones import build_backbone, describe_backbone, seeded_initialisation
    from dualtemp.models.heads import (
        byol_predictor,
        byol_projector,
        contrastive_predictor,
        contrastive_projector,
        mlp,
        simclr_projector,
        simsiam_predictor,
        simsiam_projector,
        three_layer_projector,
    )
    from dualtemp.models.momentum import MomentumCopy
    from dualtemp.models.registry import backbone
    from dualtemp.models.resnet_mini import ResNetMini
    from dualtemp.models.weights import initialise, load_weights, save_backbone

_HOME = {
    "MomentumCopy": "momentum",
    "ResNetMini": "resnet_mini",
    "backbone": "registry",
    "build_backbone": "backbones",
    "byol_predictor": "heads",
    "byol_projector": "heads",
    "contrastive_predictor": "heads",
    "contrastive_projector": "heads",
    "describe_backbone": "backbones",
    "initialise": "weights",
    "load_weights": "weights",
    "mlp": "heads",
    "save_backbone": "weights",
    "seeded_initialisation": "backbones",
    "simclr_projector": "heads",
    "simsiam_predictor": "heads",
    "simsiam_projector": "heads",
    "three_layer_projector": "heads",
}

__all__ = [
    "MomentumCopy",
    "ResNetMini",
    "backbone",
    "build_backbone",
    "byol_predictor",
    "byol_projector",
    "contrastive_predictor",
    "contrastive_projector",
    "describe_backbone",
    "initialise",
    "load_weights",
    "mlp",
    "save_backbone",
    "seeded_initialisation",
    "simclr_projector",
    "simsiam_predictor",
    "simsiam_projector",
    "three_layer_projector",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
