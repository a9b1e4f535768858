"""Exact t-SNE (van der Maaten & Hinton 2008) of some hundred points: neighbours stay neighbours on a map.

Nothing is drawn at random: it starts from the first two principal components, so that a map comes out the same again.
"""

import math

import torch
from torch import Tensor

PERPLEXITY = 30.0  # about so many neighbours a point has
EXAGGERATED, STEPS = 150, 500  # steps with attraction twelvefold, in which groups form; steps in all
EXAGGERATION = 12.0
HALVINGS = 40  # of the interval in which a point's width is sought


@torch.no_grad()
def tsne(features: Tensor, start: Tensor, perplexity: float = PERPLEXITY) -> Tensor:
    """Places (N, 2) for features (N, F), from a start (N, 2); N at least 4, memory grows with N squared.

    features: distances are Euclidean; start: only its shape counts, not its scale; perplexity: default 30, at most a
    third of the other points.
    """
    count = len(features)
    p = joint_probabilities(features, min(perplexity, (count - 1) / 3))
    place = start / start.std(0).max().clamp_min(1e-12) * 1e-4
    # What scikit-learn calls "auto": of Belkina et al. 2019, in its units.
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
    """p_ij (N, N), symmetric, sums to 1: e^(-b_i |x_i - x_j|^2), each b_i such that row i has this perplexity."""
    squared = torch.cdist(features, features).square()
    # Relative to the nearest: the exponent of one neighbour is 0, whatever b_i is.
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
    """Of the Kullback-Leibler divergence by the places: 4 sum_j (p_ij - q_ij) n_ij (y_i - y_j), n = 1/(1 + |y|^2)."""
    near = 1 / (1 + torch.cdist(place, place).square())
    near.fill_diagonal_(0)
    pull = (p - near / near.sum()) * near
    return 4 * (pull.sum(1, keepdim=True) * place - pull @ place)
