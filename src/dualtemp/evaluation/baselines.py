"""Baselines for a trained encoder: raw pixels, color histograms, the same encoder untrained, and its start."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dualtemp.data.augment.views import Views
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.models.backbones import build_backbone
from dualtemp.models.weights import initialize
from dualtemp.runs.evaluated_measures import START
from dualtemp.runs.folder import RunFolder
from dualtemp.training.pretrained import input_of_start

# More pixels cost time and do not help: with 5,000 images of CIFAR-10, kNN, probe and few labels all do a little better
# on 16 px than on 32 px.
RAW_SIDE = 16
# Hue and saturation are binned together; value (or a gray image's intensity) is binned alone, which still tells gray
# images apart that are stored in color. On 200 photographs of ten classes, finer bins, or binning all three together,
# make no significant difference.
HUES, SATURATIONS, VALUES = 8, 4, 32


class RawPixels(nn.Module):
    """Images (N, C, H, W) as features: averaged over squares to at most 16 x 16, then flattened."""

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, C * side * side)."""
        squares = -(-images.shape[-1] // RAW_SIDE)
        return F.avg_pool2d(images, squares).flatten(1)


class ColorHistogram(nn.Module):
    """Which colors an image has, and roughly where: HSV histograms of the whole image and of its four quarters.

    For images without exactly three channels, these are intensity histograms of each channel. Features are square roots
    of shares of pixels (Hellinger): with plain shares, kNN and probe do up to ten points worse on chest X-rays.

    Args:
        mean: mean of the images' normalization, which is undone first.
        std: its standard deviation.
    """

    mean: Tensor  # (C, 1, 1)
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, 5 * bins) of normalized images (N, C, H, W): 64 bins in color, else 32 per channel."""
        pixels = (images * self.std + self.mean).clamp(0, 1)
        if pixels.shape[1] == 3:
            hue, saturation, value = hsv(pixels)
            color = _bin(hue, HUES) * SATURATIONS + _bin(saturation, SATURATIONS)
            found = [_shares(color, HUES * SATURATIONS), _shares(_bin(value, VALUES), VALUES)]
        else:
            found = [_shares(_bin(channel, VALUES), VALUES) for channel in pixels.unbind(1)]
        return torch.cat(found, 1).sqrt()


def hsv(pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value, each (N, H, W) from 0 to 1, of colors (N, 3, H, W) in [0, 1]; gray has hue 0."""
    red, green, blue = pixels.unbind(1)
    value, strongest = pixels.max(1)
    chroma = value - pixels.amin(1)
    safe = chroma.where(chroma > 0, 1)
    sixth = torch.where(strongest == 0, (green - blue) / safe % 6, (blue - red) / safe + 2)
    sixth = torch.where(strongest == 2, (red - green) / safe + 4, sixth)
    return sixth.where(chroma > 0, 0) / 6, chroma / value.where(value > 0, 1), value


def with_baselines(encoder: RunEncoder) -> dict[str, RunEncoder]:
    """Return the encoder and the baselines to beat. All get the same views, except a start, which has its own."""
    settings, views = encoder.settings, encoder.views
    assert settings.image_size is not None
    untrained = build_backbone(settings.backbone, settings.image_size, encoder.channels, seed=settings.seed)
    histogram = ColorHistogram(views.mean, views.std)
    own = {START: encoder} if encoder.is_start else {"trained": encoder, **_start_of(encoder)}
    return {
        **own,
        "untrained": replace(encoder, backbone=untrained.to(encoder.device).eval()),
        "raw pixels": replace(encoder, backbone=RawPixels()),
        "colour histogram": replace(encoder, backbone=histogram.to(encoder.device)),
    }


def _start_of(encoder: RunEncoder) -> dict[str, RunEncoder]:
    """The run's start, with the input that it expects; empty if the run keeps no start."""
    run = RunFolder(encoder.path)
    if not run.start.is_file():
        return {}
    views, wanted = encoder.views, input_of_start(run)
    if wanted is not None:
        own = (wanted.mean, wanted.std, wanted.interpolation, wanted.crop)
        views = Views(views.recipe, wanted.size, views.seed, *own, views.levels)  # levels belong to the images
    backbone = build_backbone(encoder.settings.backbone, views.size, encoder.channels, seed=encoder.settings.seed)
    initialize(backbone, run.start)
    return {START: replace(encoder, backbone=backbone.to(encoder.device).eval().requires_grad_(False), views=views)}


def _bin(values: Tensor, count: int) -> Tensor:
    return (values * count).long().clamp_(0, count - 1)


def _shares(places: Tensor, bins: int) -> Tensor:
    """Shares (N, 5 * bins) of the pixels in each bin, for the whole image and then for each quarter."""
    top, left = (-(-side // 2) for side in places.shape[1:])
    quarters = [places[:, rows, columns] for rows in _halves(top) for columns in _halves(left)]
    found = []
    for part in (places, *quarters):
        flat = part.flatten(1)
        counts = torch.zeros(len(flat), bins, device=flat.device)
        found.append(counts.scatter_add_(1, flat, torch.ones_like(flat, dtype=counts.dtype)) / max(flat.shape[1], 1))
    return torch.cat(found, 1)


def _halves(middle: int) -> tuple[slice, slice]:
    return slice(None, middle), slice(middle, None)
