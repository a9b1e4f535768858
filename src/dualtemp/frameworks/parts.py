"""The parts of frameworks, imported on first use: a framework's file can mention `parts.mlp` without loading torch."""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.distributed import global_mean
    from dualtemp.frameworks.anchors import Anchors
    from dualtemp.frameworks.hardness_weight import weighted_cosine, weighted_distance
    from dualtemp.frameworks.network import Embedding, Network, Step
    from dualtemp.losses import (
        barlow_twins,
        cross_entropy,
        decomposed,
        dual_temperature,
        info_nce,
        nt_xent,
        vicreg,
    )
    from dualtemp.losses.similarity import unit
    from dualtemp.losses.similarity_distillation import similarity_distillation
    from dualtemp.models.dictionary import KeyDictionary, dictionaries
    from dualtemp.models.heads import (
        byol_predictor,
        byol_projector,
        contrastive_predictor,
        contrastive_projector,
        linear,
        mlp,
        simclr_projector,
        simsiam_predictor,
        simsiam_projector,
        three_layer_projector,
    )
    from dualtemp.models.momentum import MomentumCopy
    from dualtemp.models.teacher_features import TeacherFeatures

_HOME = {
    "Anchors": "frameworks.anchors",
    "Embedding": "frameworks.network",
    "KeyDictionary": "models.dictionary",
    "MomentumCopy": "models.momentum",
    "Network": "frameworks.network",
    "Step": "frameworks.network",
    "TeacherFeatures": "models.teacher_features",
    "barlow_twins": "losses",
    "byol_predictor": "models.heads",
    "byol_projector": "models.heads",
    "contrastive_predictor": "models.heads",
    "contrastive_projector": "models.heads",
    "cross_entropy": "losses",
    "decomposed": "losses",
    "dictionaries": "models.dictionary",
    "dual_temperature": "losses",
    "global_mean": "distributed",
    "info_nce": "losses",
    "linear": "models.heads",
    "mlp": "models.heads",
    "nt_xent": "losses",
    "simclr_projector": "models.heads",
    "similarity_distillation": "losses.similarity_distillation",
    "simsiam_predictor": "models.heads",
    "simsiam_projector": "models.heads",
    "three_layer_projector": "models.heads",
    "unit": "losses.similarity",
    "vicreg": "losses",
    "weighted_cosine": "frameworks.hardness_weight",
    "weighted_distance": "frameworks.hardness_weight",
}

__all__ = [
    "Anchors",
    "Embedding",
    "KeyDictionary",
    "MomentumCopy",
    "Network",
    "Step",
    "TeacherFeatures",
    "barlow_twins",
    "byol_predictor",
    "byol_projector",
    "contrastive_predictor",
    "contrastive_projector",
    "cross_entropy",
    "decomposed",
    "dictionaries",
    "dual_temperature",
    "global_mean",
    "info_nce",
    "linear",
    "mlp",
    "nt_xent",
    "simclr_projector",
    "similarity_distillation",
    "simsiam_predictor",
    "simsiam_projector",
    "three_layer_projector",
    "unit",
    "vicreg",
    "weighted_cosine",
    "weighted_distance",
]

__getattr__, __dir__ = lazily("dualtemp", _HOME)
