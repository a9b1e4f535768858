"""The two directions in which unit features differ most."""

from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.losses.similarity import unit


class Principal(NamedTuple):
    """Places (N, 2), and the share of the variance that each direction explains."""

    places: Tensor
    explained: tuple[float, float]


@torch.no_grad()
def principal_components(features: Tensor) -> Principal:
    """The first two principal components of unit features (N, F), in float64 on the CPU.

    A component's sign is such that its largest coefficient is positive: without that it would be left to chance. What
    there is not (one image, one feature, all alike) is 0.
    """
    (z,) = unit(features.detach().cpu().double())
    centred = z - z.mean(0)
    _, lengths, directions = torch.linalg.svd(centred, full_matrices=False)  # (R,), (R, F)
    directions = directions[:2]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    places = centred @ (directions * torch.where(largest < 0, -1.0, 1.0)).T
    places = torch.nn.functional.pad(places, (0, 2 - places.shape[1]))
    variance = lengths.square()
    total = float(variance.sum())
    shares = [float(v) / total if total > 1e-18 else 0.0 for v in variance[:2]]
    first, second = [*shares, 0.0, 0.0][:2]
    return Principal(places, (first, second))
