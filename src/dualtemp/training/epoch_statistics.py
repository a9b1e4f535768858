"""Means over the steps of an epoch and over all processes, which a checkpoint can save mid-epoch."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.hardness import entropy
from dualtemp.runs.thresholds import hardest_tenth

NAMES = ("loss", "entropy", "W_mean", "W_spread", "hardest_tenth")
STEPS = "steps"
# Old checkpoints hold a tensor: totals of all of these, or of the first two, then the number of steps. Never change it.
_BY_POSITION = ("loss", "entropy", "W_mean", "W_spread", "hardest_tenth")


class EpochStatistics:
    """Sums up the steps of an epoch: the loss, and how weight is distributed over the anchors of all processes.

    totals: a checkpoint's sums over steps by name, and its number of steps, to continue from. A statistic that an old
    checkpoint lacks is unknown (nan) for the rest of that epoch and left out of its means.
    """

    def __init__(self, totals: Mapping[str, float] | Tensor | None = None) -> None:
        saved = _by_name(totals) if isinstance(totals, Tensor) else totals or {}
        unknown = float("nan") if saved.get(STEPS, 0.0) > 0 else 0.0
        self.totals = {name: saved.get(name, unknown) for name in (*NAMES, STEPS)}
        self.losses: list[Tensor] = []  # of steps not yet in the totals
        self.weights: list[Tensor] = []

    def add(self, loss: Tensor, weights: Tensor | None) -> None:
        """Add a step: its loss, and the inter-anchor weights W of this process's anchors, (N,) or (2, N)."""
        self.losses.append(loss.detach())
        if weights is not None:
            self.weights.append((weights if weights.ndim == 1 else weights[0]).detach())

    def settle(self) -> Tensor:
        """Add the waiting steps of all processes to the totals; returns the losses of these steps on the CPU."""
        if not self.losses:
            return torch.empty(0, dtype=torch.float64)
        losses = torch.stack(self.losses).cpu().double()  # MPS has no float64
        of_anchors = [float("nan")] * (len(NAMES) - 1)
        if self.weights:
            of_anchors = weight_statistics(_gather_anchors(torch.stack(self.weights)).cpu().double()).sum(1).tolist()
        for name, more in zip(self.totals, (losses.sum().item(), *of_anchors, float(len(losses))), strict=True):
            self.totals[name] += more
        self.losses, self.weights = [], []
        return losses

    def means(self) -> dict[str, float]:
        """Mean loss and, if the framework has weights W, the means of `weight_statistics`, by name."""
        steps = self.totals[STEPS] or float("nan")
        means = {name: self.totals[name] / steps for name in NAMES}
        return {name: mean for name, mean in means.items() if name == "loss" or mean == mean}


def weight_statistics(W: Tensor) -> Tensor:
    """Per-step statistics of W (S, N): entropy, mean, std, share of the hardest tenth. Returns (4, S).

    The entropy is that of r_+ in nats; the hardest tenth are ceil(N / 10) anchors, and their share is that of sum W.
    """
    total, tenth = W.sum(1), hardest_tenth(W.shape[1])
    return torch.stack(
        (
            entropy(W / total.unsqueeze(1)),
            W.mean(1),
            W.std(1, correction=0),
            W.topk(tenth, sorted=False).values.sum(1) / total,
        )
    )


def _by_name(totals: Tensor) -> dict[str, float]:
    *sums, steps = totals.tolist()
    return {**dict(zip(_BY_POSITION, sums, strict=False)), STEPS: steps}


def _gather_anchors(W: Tensor) -> Tensor:
    """Weights (S, n) of each process's anchors -> (S, N) of all anchors."""
    gathered = distributed.gather(W, equal=True)  # (processes x S, n)
    return gathered.unflatten(0, (-1, len(W))).transpose(0, 1).flatten(1)
