"""A map of many points on which neighbors stay neighbors: exact t-SNE of some, the others placed among them.

Up to EXACT points, all are laid out by exact t-SNE. If there are more, that many landmarks are, and every other point
starts among its nearest landmarks. If there are at most REFINED, all then move by the forces of t-SNE, estimated from
samples: each point is pulled to NEIGHBORS of its nearest neighbors, and pushed away from points drawn at random
(negative sampling, as in UMAP; Damrich et al. 2023 show how the two are related). Nearest neighbors are searched among
the points that share a near landmark. Memory and time grow with N; draws are seeded.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dualtemp.analysis.tsne import tsne

FEWEST = 8  # fewest points for a map of neighbors
EXACT = 1_000
REFINED = 300_000
NEIGHBORS = 12
CELLS = 4  # nearest landmarks of a point; its neighbors are searched among the points of each
EPOCHS = 120
PUSHED = 5  # random points that push a point away, for each neighbor that pulls it
BLOCK = 8_192
COSINES = 1 << 26  # computed at a time: if most images are alike, most of them are candidates in one cell
SIZE = 4.0  # standard deviation of the map while the forces act: neighbors are then about 1 apart

Progress = Callable[[int, int], None]


@torch.no_grad()
def neighbor_layout(
    features: np.ndarray, start: np.ndarray, progress: Progress = lambda done, total: None
) -> tuple[np.ndarray, str]:
    """Lay out unit features float32 (N, F); start: float32 (N, 2), their principal components.

    Returns places float32 (N, 2) and one line that says how they were made.
    """
    count = len(features)
    if count < FEWEST:
        return start, f"Principal components: {count} images are too few for a map of neighbors."
    progress(0, EPOCHS)
    x, y = torch.from_numpy(features), torch.from_numpy(start).float()
    if count <= EXACT:
        return tsne(x, y).numpy(), "Exact t-SNE: neighbors stay neighbors; distances between groups say little."
    landmarks = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:EXACT].sort().values
    placed = tsne(x[landmarks], y[landmarks])
    placed = placed / placed.std(0).max().clamp_min(1e-12) * SIZE
    near, cosines = _nearest_landmarks(x, x[landmarks], progress)
    weights = torch.softmax(cosines * 20, 1)
    y = (placed[near] * weights[:, :, None]).sum(1)  # (N, 2)
    about = f"t-SNE of {EXACT:,} landmarks, the other images placed among them"
    if count > REFINED:
        return y.numpy(), f"{about} (too many to refine): coarse; zoom in, and look at neighbors with More like these."
    y = _refined(y, _near_points(x, near, progress), progress)
    return y.numpy(), f"{about}, then refined by sampled forces: neighbors stay neighbors, approximately."


def _nearest_landmarks(x: Tensor, landmarks: Tensor, progress: Progress) -> tuple[Tensor, Tensor]:
    """Numbers and cosines (N, CELLS) of the landmarks nearest to each point, nearest first."""
    near, cosines = [], []
    for start in range(0, len(x), BLOCK):
        found = (x[start : start + BLOCK] @ landmarks.T).topk(CELLS, dim=1)
        near.append(found.indices)
        cosines.append(found.values)
        progress(0, EPOCHS)
    return torch.cat(near), torch.cat(cosines)


def _near_points(x: Tensor, near: Tensor, progress: Progress) -> Tensor:
    """Numbers (N, NEIGHBORS) of points near each point; if a cell has too few, the point itself fills the gaps."""
    order = near[:, 0].argsort(stable=True)
    bounds = torch.searchsorted(near[order, 0].contiguous(), torch.arange(int(near.max()) + 2))
    flat = near.reshape(-1)
    by_cell = flat.argsort(stable=True)
    cells = torch.searchsorted(flat[by_cell].contiguous(), torch.arange(int(near.max()) + 2))
    found = torch.arange(len(x))[:, None].repeat(1, NEIGHBORS)
    for cell in range(len(bounds) - 1):
        members = order[bounds[cell] : bounds[cell + 1]]
        if not len(members):
            continue
        candidates = by_cell[cells[cell] : cells[cell + 1]] // near.shape[1]
        for block in members.split(max(1, min(BLOCK, COSINES // len(candidates)))):
            s = x[block] @ x[candidates].T
            s[block[:, None] == candidates[None]] = -2.0  # exclude the point itself
            most = min(NEIGHBORS, len(candidates) - 1)
            if most:
                found[block, :most] = candidates[s.topk(most, dim=1).indices]
        progress(0, EPOCHS)
    return found


def _refined(y: Tensor, neighbors: Tensor, progress: Progress) -> Tensor:
    """Move places (N, 2) by pulls of neighbors (N, K) and pushes of others, with ever smaller steps."""
    draw = torch.Generator().manual_seed(0)
    count, rate = len(y), 1.0
    for epoch in range(EPOCHS):
        pull = y[neighbors] - y[:, None]  # (N, K, 2)
        pull = pull / (1 + pull.square().sum(2, keepdim=True))
        force = pull.sum(1)
        force.index_add_(0, neighbors.reshape(-1), -pull.reshape(-1, 2))
        others = torch.randint(count, (count, PUSHED), generator=draw)
        away = y[:, None] - y[others]
        squared = away.square().sum(2, keepdim=True)
        force += NEIGHBORS * (away / ((0.01 + squared) * (1 + squared))).clamp(-4, 4).sum(1)
        step = rate * (1 - epoch / EPOCHS) / (2 * NEIGHBORS)
        y = y + (step * force).clamp(-4, 4)
        progress(epoch + 1, EPOCHS)
    return y
