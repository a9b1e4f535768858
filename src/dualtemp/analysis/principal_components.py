"""The first two principal components of unit features."""

from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.losses.similarity import unit


class Principal(NamedTuple):
    """Coordinates (N, 2), and the share of the variance that each component explains."""

    places: Tensor
    explained: tuple[float, float]


@torch.no_grad()
def principal_components(features: Tensor) -> Principal:
    """Project features (N, F), normalized to unit length, onto their first two principal components; float64, CPU.

    The sign of a component, otherwise arbitrary, makes its largest coefficient positive. Components that do not exist
    (one image, one feature, identical features) are 0.
    """
    (z,) = unit(features.detach().cpu().double())
    centered = z - z.mean(0)
    _, lengths, directions = torch.linalg.svd(centered, full_matrices=False)  # (R,), (R, F)
    directions = directions[:2]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    places = centered @ (directions * torch.where(largest < 0, -1.0, 1.0)).T
    places = torch.nn.functional.pad(places, (0, 2 - places.shape[1]))
    variance = lengths.square()
    total = float(variance.sum())
    shares = [float(v) / total if total > 1e-18 else 0.0 for v in variance[:2]]
    first, second = [*shares, 0.0, 0.0][:2]
    return Principal(places, (first, second))
