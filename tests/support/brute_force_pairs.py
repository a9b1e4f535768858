"""Losses of any pairs as they are written down: float64, whole matrices, one anchor after the other."""

import math

import torch
from brute_force import unit
from torch import Tensor


def two_towers(
    a: Tensor,
    b: Tensor,
    tau: Tensor | float,
    tau_beta: float | None,
    excluded: Tensor,
    both_directions: bool = True,
    both_views: bool = False,
) -> tuple[Tensor, Tensor]:
    """Loss (A, N) of each anchor and whether it counts; `excluded` (N, N) for the anchors of a, transposed of b."""
    a, b = unit(a), unit(b)
    losses, counted = [], []
    for anchors, keys, out in ((a, b, excluded), (b, a, excluded.T))[: 1 + both_directions]:
        for i in range(len(a)):
            others = [j for j in range(len(a)) if j != i and not out[i, j]]
            s = (anchors[i] * keys[others]).sum(-1) if others else a.new_zeros(0)
            if both_views:
                s = torch.cat((s, (anchors[i] * anchors[others]).sum(-1)))
            value = _pair((anchors[i] * keys[i]).sum(), s, tau, tau_beta) if others else a.sum() * 0
            losses.append(value)
            counted.append(bool(others))
    return torch.stack(losses).view(-1, len(a)), torch.tensor(counted).view(-1, len(a))


def supervised(
    anchors: Tensor,
    keys: Tensor,
    labels: Tensor,
    key_labels: Tensor,
    tau: Tensor | float,
    tau_beta: float | None,
    exists: Tensor,
) -> tuple[Tensor, Tensor]:
    """Loss (N,) of each anchor, the mean over its positives, and whether it counts; `exists` (N, K)."""
    anchors, keys = unit(anchors), unit(keys)
    losses, counted = [], []
    for i in range(len(anchors)):
        there = [j for j in range(len(keys)) if exists[i, j]]
        positives = [j for j in there if key_labels[j] == labels[i]]
        s = {j: (anchors[i] * keys[j]).sum() for j in there}
        values = [
            _pair(s[p], torch.stack([s[j] for j in there if j != p]), tau, tau_beta)
            for p in positives
            if s.keys() > {p}
        ]
        losses.append(torch.stack(values).mean() if values else anchors.sum() * 0)
        counted.append(bool(values))
    return torch.stack(losses), torch.tensor(counted)


def _pair(positive: Tensor, negatives: Tensor, tau: Tensor | float, tau_beta: float | None) -> Tensor:
    """W(tau_beta) / W(tau) x -log p_+, the quotient a constant; tied: -log p_+."""
    odds = torch.exp((negatives - positive) / tau).sum()
    if tau_beta is None:
        return torch.log1p(odds)
    other = (
        torch.exp((negatives - positive) / tau_beta).sum() if not math.isinf(tau_beta) else odds * 0 + len(negatives)
    )
    quotient = (other / (1 + other)) / (odds / (1 + odds))
    return quotient.detach() * torch.log1p(odds)
