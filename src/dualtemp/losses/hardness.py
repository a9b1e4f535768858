"""The algebra of the paper: what one anchor weighs against another, and one negative against another.

Everything follows from the log-odds of an anchor being taken for one of its negatives, at a temperature tau:

    d_i(tau)    = log sum_j e^(s_ij / tau) - s_i+ / tau
    W_i(tau)    = sigmoid(d_i)                             inter-anchor weight, a scalar per anchor
    p_+         = sigmoid(-d_i)                            probability of the positive
    p^_ij(tau)  = e^(s_ij / tau) / sum_j e^(s_ij / tau)    intra-anchor weights, sum to 1: the gradient of d_i
    r_+         = W_i / sum_i W_i                          relative penalty (eq:inter_penalty)

Working with d keeps the digits that 1 - p_+ would lose. tau = inf is allowed: W_i = K / (K + 1) for every anchor.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.losses.similarity import log_sum_exp, true_precision, unit
from dualtemp.losses.temperature import is_infinite

# The log-odds of an anchor that is left without negatives: its weight is 0, and nothing becomes a nan.
NO_NEGATIVES = -1e30


class Similarities(NamedTuple):
    """Cosine similarities of N anchors to their positive (N,) and to their K negatives (N, K)."""

    positive: Tensor
    negatives: Tensor


def similarities(q: Tensor, k_pos: Tensor, negatives: Tensor | None = None) -> Similarities:
    """Cosine similarities of anchors to their positives and negatives, as whole matrices.

    Args:
        q: anchors, (N, D), of any length.
        k_pos: their positive keys, (N, D).
        negatives: keys, (K, D); None takes the other rows of `k_pos` (K = N - 1).
    """
    q, k_pos, *keys = unit(q, k_pos, *([] if negatives is None else [negatives]))
    with true_precision(q.device):
        if keys:
            return Similarities(positive_similarity(q, k_pos), q @ keys[0].T)
        s = q @ k_pos.T
        others = ~torch.eye(len(s), dtype=torch.bool, device=s.device)
        return Similarities(s.diagonal(), s[others].view(len(s), -1))


def positive_similarity(q: Tensor, k_pos: Tensor) -> Tensor:
    """s_i+ (N,) of unit vectors (N, D)."""
    return (q * k_pos).sum(-1)


def log_odds(positive: Tensor, negatives: Tensor, tau: float, absent: Tensor | None = None) -> Tensor:
    """d_i(tau), (N,), from similarities to the positive (N,) and to the negatives (N, K).

    absent: bool (N, K), negatives of -inf that do not exist: at tau = inf they would count, and a row of nothing else
    would have no gradient.
    """
    scaled = negatives / tau
    if absent is not None:
        scaled = scaled.masked_fill(absent, NO_NEGATIVES)
    # At tau = inf a positive of -inf is as far away as any other; -inf / inf is nan.
    own = torch.zeros_like(positive) if is_infinite(tau) else positive / tau
    return torch.logsumexp(scaled, -1) - own


def log_odds_of_embeddings(q: Tensor, k_pos: Tensor, negatives: Tensor | None, tau: float) -> Tensor:
    """d_i(tau), (N,), detached, from embeddings as in `similarities`, without the (N, K) matrix."""
    with torch.no_grad():
        q, k_pos, *keys = unit(q, k_pos, *([] if negatives is None else [negatives]))
        lse = log_sum_exp(q, keys[0] if keys else k_pos, tau, own=None if keys else 0).beta[0]
        return lse - positive_similarity(q, k_pos) / tau


def inter_anchor_weight(d: Tensor) -> Tensor:
    """W_i in [0, 1] from log-odds (N,): how hard the anchor is."""
    return torch.sigmoid(d)


def positive_probability(d: Tensor) -> Tensor:
    """p_+ in [0, 1] from log-odds (N,)."""
    return torch.sigmoid(-d)


def intra_anchor_weights(negatives: Tensor, tau: float) -> Tensor:
    """p^_ij(tau), (N, K), from similarities to the negatives (N, K): each row sums to 1."""
    return torch.softmax(negatives / tau, -1)


def relative_penalty(d: Tensor) -> Tensor:
    """r_+ from log-odds (..., N): each anchor's share of the weight, sums to 1 over the last dimension."""
    return torch.softmax(F.logsigmoid(d), -1)


def entropy(r: Tensor) -> Tensor:
    """Entropy in nats of r_+ (..., N): log N where all anchors weigh the same, 0 where one has all the weight."""
    return torch.special.entr(r).sum(-1)


def penalty_similarity(r: Tensor, redrawn: Tensor) -> Tensor:
    """Cosine similarity of two draws of r_+ (..., N), of the same anchors with other keys (fig:abg_similarity)."""
    return F.cosine_similarity(r, redrawn, dim=-1)
