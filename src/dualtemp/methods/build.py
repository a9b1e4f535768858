"""From settings to a framework."""

from typing import Any

import torch
from torch import nn

from dualtemp.config import Settings, tau_beta
from dualtemp.methods.byol import BYOL
from dualtemp.methods.moco import KeyChoice, MoCo
from dualtemp.methods.network import Network
from dualtemp.methods.simclr import SimCLR
from dualtemp.methods.simco import SimCo
from dualtemp.methods.simmoco import SimMoCo
from dualtemp.methods.simsiam import SimSiam
from dualtemp.methods.supervised import Supervised
from dualtemp.models import heads
from dualtemp.models.backbones import build_backbone
from dualtemp.models.weights import initialise


def views_needed(method: str) -> int:
    """Views of each image that a step of the framework looks at."""
    return 1 if method == "supervised" else 2


def build_method(chosen: Settings, channels: int, classes: int) -> nn.Module:
    """The framework that complete settings describe, its weights drawn from the seed alone.

    channels: of the images; classes: of the labels, for supervised learning.
    """
    assert chosen.image_size is not None
    backbone = build_backbone(chosen.backbone, chosen.image_size, channels, seed=chosen.seed)
    if chosen.init is not None:
        initialise(backbone, chosen.init)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chosen.seed + 1)
        network = _network(chosen.method, backbone, classes)
    return _framework(chosen, network)


def _network(method: str, backbone: Any, classes: int) -> Network:
    width = backbone.num_features
    if method == "supervised":
        return Network(backbone, nn.Linear(width, classes))
    if method == "simclr":
        return Network(backbone, heads.simclr_projector(width))
    if method == "byol":
        return Network(backbone, heads.byol_projector(width), heads.byol_predictor())
    if method == "simsiam":
        return Network(backbone, heads.simsiam_projector(width), heads.simsiam_predictor())
    return Network(backbone, heads.contrastive_projector(width))


def _framework(chosen: Settings, network: Network) -> nn.Module:
    # The settings are complete: what applies to the method is there.
    s: Any = chosen
    if s.method == "simco":
        return SimCo(network, s.tau_alpha, tau_beta(s), s.both_views)
    if s.method == "simclr":
        return SimCLR(network, s.tau_alpha)
    if s.method == "byol":
        return BYOL(network, s.key_momentum, s.hardness_aware, s.tau_weight, s.computation)
    if s.method == "simsiam":
        return SimSiam(network, s.hardness_aware, s.tau_weight)
    if s.method == "supervised":
        return Supervised(network, s.tau_alpha, tau_beta(s))
    if s.method == "simmoco":
        return SimMoCo(network, s.tau_alpha, tau_beta(s), s.key_momentum, s.symmetric, s.both_views)
    if s.keys == "current":  # MoCo without a dictionary is SimMoCo
        return SimMoCo(network, s.tau_alpha, tau_beta(s), s.key_momentum, s.symmetric)
    projector: Any = network.projector
    return MoCo(
        network,
        projector[-1].out_features,
        s.tau_alpha,
        tau_beta(s),
        s.key_momentum,
        s.batch if s.keys == "last" else s.dictionary_size,
        KeyChoice(s.vector_size, s.vector_sampling),
        KeyChoice(s.scalar_size, s.scalar_sampling),
        s.symmetric,
        s.seed,
    )
