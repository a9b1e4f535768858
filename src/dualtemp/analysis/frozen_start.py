"""A pretrained start in place of a trained run, with its features in place of projections."""

from pathlib import Path

import torch
from torch import nn

from dualtemp.analysis.analyzed_data import as_training_data
from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.data import open_source
from dualtemp.encoder.encoder import run_encoder
from dualtemp.errors import UserError
from dualtemp.frameworks.build import FrameworkModule
from dualtemp.frameworks.network import Network
from dualtemp.frameworks.protocol import Context, newest_version
from dualtemp.training.run_data import with_channels


def frozen_start(word: Path, device: torch.device | str, data: str | Path | None) -> TrainedRun:
    """Open a start and images to analyze. It stays in eval mode, since its batch norm statistics are of many batches.

    Args:
        word: "imagenet", "timm:NAME" or a folder of timm.
        device: where to compute.
        data: a set, a folder or an .npz file.
    """
    if data is None:
        raise UserError(f"{word} has no images of its own: give some, --data FOLDER|SET|FILE.npz")
    encoder = run_encoder(word, str(device))
    chosen = encoder.settings
    context = Context(chosen.seed, chosen.batch, 0, newest_version(chosen.framework, chosen.options))
    method = FrameworkModule(chosen.framework(chosen.options, Network(encoder.backbone, nn.Identity()), context))
    seen = as_training_data(with_channels(open_source(data), encoder.channels), encoder.views)
    return TrainedRun(word, chosen, method.eval(), seen, encoder.device, 0, own_data=False)
