"""Clusters of features by cosine: k-means whose memory grows with the number of images, not with its square."""

from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.losses.similarity import true_precision, unit

TILE = 1 << 22  # similarities at once: 16 MiB
SAMPLE = 256  # images per cluster that centers are fitted to; more cost time but hardly move the centers
ROUNDS = 25  # at most


class Clusters(NamedTuple):
    """Unit centers (K, F), and the number int64 (N,) of the cluster that each image belongs to."""

    centers: Tensor
    of_image: Tensor


@torch.no_grad()
def cluster(features: Tensor, k: int, *, seed: int = 0) -> Clusters:
    """Divide features (N, F) into at most k clusters by cosine; spherical k-means from a k-means++ start.

    Centers are fitted to at most 256 k images, drawn by the seed; then every image joins its nearest center. Of equally
    near centers the first is taken, and a center that no image joins is left out.
    """
    if k < 1 or not len(features):
        raise ValueError(f"cluster: give at least one cluster and one image, got {k} and {len(features)}")
    (z,) = unit(features)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(z), generator=generator)[: max(SAMPLE * k, 1)]
    sample = z[drawn.sort().values.to(z.device)]
    centers = sample[_spread(sample, min(k, len(sample)), generator)]
    before = None
    for _ in range(ROUNDS):
        nearest = _nearest(sample, centers)
        if before is not None and torch.equal(nearest, before):
            break
        before = nearest
        sums = torch.zeros_like(centers).index_add_(0, nearest, sample)
        held = sums.norm(dim=1) > 0  # a center without images, or whose images cancel out, stays
        centers[held] = unit(sums[held])[0]
    nearest = _nearest(z, centers)
    used, nearest = nearest.unique(return_inverse=True)
    return Clusters(centers[used], nearest)


def _spread(z: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """K-means++ (Arthur, Vassilvitskii 2007): draw each center with weight squared distance to those drawn before."""
    chosen = [int(torch.randint(len(z), (), generator=generator))]
    far = torch.full((len(z),), torch.inf, device=z.device)
    while len(chosen) < k:
        far = torch.minimum(far, 2 - 2 * (z @ z[chosen[-1]])).clamp_min_(0)
        far[chosen[-1]] = 0
        total = far.double().cumsum(0)
        if float(total[-1]) <= 0:  # only copies of the centers are left
            break
        at = torch.rand((), dtype=torch.float64, generator=generator).to(z.device) * total[-1]
        chosen.append(min(int(torch.searchsorted(total, at, right=True)), len(z) - 1))
    return torch.tensor(chosen, device=z.device)


def _nearest(z: Tensor, centers: Tensor) -> Tensor:
    with true_precision(z.device):
        rows = z.split(max(1, TILE // len(centers)))
        return torch.cat([(part @ centers.T).argmax(1) for part in rows])
