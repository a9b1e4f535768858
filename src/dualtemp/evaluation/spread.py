"""Geometry of features on the unit sphere, without labels. All take features (N, F) and return a scalar tensor."""

import math

import torch
from torch import Tensor

from dualtemp.losses.similarity import log_sum_exp, unit


@torch.no_grad()
def feature_spread(features: Tensor) -> Tensor:
    """sqrt(F) * mean over dimensions of std over images of z / |z|.

    About 1 if features are spread evenly over all directions, near 0 if the encoder has collapsed to one vector.
    """
    (z,) = unit(features)
    return z.std(0, correction=0).mean() * math.sqrt(z.shape[1])


@torch.no_grad()
def effective_rank(features: Tensor) -> Tensor:
    """exp(-sum_i p_i log p_i) with p_i = s_i / sum_j s_j, and s the singular values of the (N, F) matrix.

    From 1 (all features on one line: collapse) to min(N, F). Features are neither centered nor scaled.
    """
    s = torch.linalg.svdvals(features if features.dtype == torch.float64 else features.float())
    p = s / s.sum().clamp_min(torch.finfo(s.dtype).tiny)
    return torch.special.entr(p).sum().exp()


@torch.no_grad()
def alignment(features: Tensor, other: Tensor, *, power: float = 2) -> Tensor:
    """Mean over images of |z - z'|^power (Wang & Isola 2020), z and z' the unit features (N, F) of two views.

    0 if both views of every image agree.
    """
    z, z_other = unit(features, other)
    return (z - z_other).norm(dim=1).pow(power).mean()


@torch.no_grad()
def uniformity(features: Tensor, *, t: float = 2) -> Tensor:
    """log of the mean over pairs of different images of exp(-t |z_i - z_j|^2) (Wang & Isola 2020), z = unit features.

    0 if all features are equal; the more evenly they fill the sphere, the lower (-2 t + O(1 / F) at best). Needs at
    least two images; memory grows with N, not with N squared.
    """
    if len(features) < 2:
        raise ValueError("uniformity: give the features of at least two images")
    (z,) = unit(features)
    N = len(z)
    # |z_i - z_j|^2 = 2 - 2 s_ij, so the sum over pairs is a log-sum-exp of similarities at temperature 1 / (2 t).
    lse = log_sum_exp(z, z, 1 / (2 * t), own=0).alpha[0]  # (N,)
    return lse.logsumexp(0) - 2 * t - math.log(N * (N - 1))
