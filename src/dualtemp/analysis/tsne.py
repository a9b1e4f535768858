"""Exact t-SNE (van der Maaten & Hinton 2008) of some hundred points: neighbors stay neighbors on a map.

It is deterministic: it starts from the first two principal components and draws nothing at random.
"""

import math

import torch
from torch import Tensor

PERPLEXITY = 30.0  # effective number of neighbors per point
EXAGGERATED, STEPS = 150, 500  # steps with exaggerated attraction, in which groups form; steps in all
EXAGGERATION = 12.0
HALVINGS = 40  # bisection steps when searching a point's bandwidth


@torch.no_grad()
def tsne(features: Tensor, start: Tensor, perplexity: float = PERPLEXITY) -> Tensor:
    """Map features (N, F) to positions (N, 2), starting from `start` (N, 2). Needs N >= 4; memory grows with N squared.

    features: compared by Euclidean distance; start: its scale does not matter; perplexity: default 30, at most a third
    of the other points.
    """
    count = len(features)
    p = joint_probabilities(features, min(perplexity, (count - 1) / 3))
    place = start / start.std(0).max().clamp_min(1e-12) * 1e-4
    # scikit-learn's "auto" learning rate (Belkina et al. 2019), in its units.
    rate = max(count / EXAGGERATION / 4, 50.0)
    velocity, gain = torch.zeros_like(place), torch.ones_like(place)
    for step in range(STEPS):
        early = step < EXAGGERATED
        slope = _gradient(p * EXAGGERATION if early else p, place)
        against = slope * velocity < 0
        gain = torch.where(against, gain + 0.2, gain * 0.8).clamp_min(0.01)
        velocity = (0.5 if early else 0.8) * velocity - rate * gain * slope
        place = place + velocity
    return place - place.mean(0)


def joint_probabilities(features: Tensor, perplexity: float) -> Tensor:
    """Compute symmetric p_ij (N, N) with sum 1 from e^(-b_i |x_i - x_j|^2); b_i gives row i this perplexity."""
    squared = torch.cdist(features, features).square()
    # Relative to the nearest neighbor, whose exponent is then 0 for any b_i.
    squared.fill_diagonal_(math.inf)
    squared = squared - squared.min(1, keepdim=True).values
    scale = squared[squared.isfinite()].mean().clamp_min(1e-30)
    low, high = features.new_full((len(features), 1), -30.0), features.new_full((len(features), 1), 30.0)
    wanted = math.log(perplexity)
    for _ in range(HALVINGS):  # of log b_i: the entropy falls as b_i rises
        middle = (low + high) / 2
        rows = torch.softmax(-squared / scale * middle.exp(), 1)
        too_wide = torch.special.entr(rows).sum(1, keepdim=True) > wanted
        low, high = torch.where(too_wide, middle, low), torch.where(too_wide, high, middle)
    rows = torch.softmax(-squared / scale * ((low + high) / 2).exp(), 1)
    return (rows + rows.T) / (2 * len(rows))


def _gradient(p: Tensor, place: Tensor) -> Tensor:
    """Gradient of the Kullback-Leibler divergence: 4 sum_j (p_ij - q_ij) n_ij (y_i - y_j), n = 1/(1 + |y|^2)."""
    near = 1 / (1 + torch.cdist(place, place).square())
    near.fill_diagonal_(0)
    pull = (p - near / near.sum()) * near
    return 4 * (pull.sum(1, keepdim=True) * place - pull @ place)
