"""What a trained encoder is compared with: the pixels themselves, and the same encoder before training."""

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from dualtemp.inference.encoder import RunEncoder
from dualtemp.models.backbones import build_backbone

# More pixels do not help and cost: with 5,000 images of CIFAR-10, kNN, probe and few labels all do a little better on
# 16 px than on 32 px.
RAW_SIDE = 16


class RawPixels(nn.Module):
    """Images (N, C, H, W) as features: averaged over squares to at most 16 x 16, then flattened."""

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, C * side * side)."""
        squares = -(-images.shape[-1] // RAW_SIDE)
        return F.avg_pool2d(images, squares).flatten(1)


def compared(encoder: RunEncoder) -> dict[str, RunEncoder]:
    """The trained encoder, the one that the run's seed made, and raw pixels; all see images in the same way."""
    chosen = encoder.chosen
    assert chosen.image_size is not None
    untrained = build_backbone(chosen.backbone, chosen.image_size, encoder.channels, seed=chosen.seed)
    return {
        "trained": encoder,
        "untrained": replace(encoder, backbone=untrained.to(encoder.device).eval()),
        "raw pixels": replace(encoder, backbone=RawPixels()),
    }
