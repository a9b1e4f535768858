"""Means over an epoch, of all processes, that a checkpoint can hold in its middle."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.losses.hardness import entropy
from dualtemp.training.thresholds import hardest_tenth

NAMES = ("loss", "entropy", "W_mean", "W_spread", "hardest_tenth")
STEPS = "steps"
# Older checkpoints hold a tensor: totals of these, or of the first two, and the steps. This never changes.
_BY_POSITION = ("loss", "entropy", "W_mean", "W_spread", "hardest_tenth")


class EpochMeter:
    """Adds up the steps of an epoch: the loss, and how the anchors of all processes weigh against each other.

    totals: those of a checkpoint, to go on from: sums over steps by name, and the steps. In the middle of an epoch,
    what an older checkpoint has not added up is unknown (nan), and left out of that epoch's means.
    """

    def __init__(self, totals: Mapping[str, float] | Tensor | None = None) -> None:
        saved = _by_name(totals) if isinstance(totals, Tensor) else totals or {}
        unknown = float("nan") if saved.get(STEPS, 0.0) > 0 else 0.0
        self.totals = {name: saved.get(name, unknown) for name in (*NAMES, STEPS)}
        self.losses: list[Tensor] = []  # of steps that wait to be added up
        self.weights: list[Tensor] = []

    def add(self, loss: Tensor, weights: Tensor | None) -> None:
        """Take a step in: its loss, and the inter-anchor weights W of this process's anchors, (N,) or (2, N)."""
        self.losses.append(loss.detach())
        if weights is not None:
            self.weights.append((weights if weights.ndim == 1 else weights[0]).detach())

    def settle(self) -> Tensor:
        """Share what waits with the other processes, and add it up; returns the losses of these steps on the CPU."""
        if not self.losses:
            return torch.empty(0, dtype=torch.float64)
        losses = torch.stack(self.losses).cpu().double()  # MPS knows no float64
        of_anchors = [float("nan")] * (len(NAMES) - 1)
        if self.weights:
            of_anchors = told_of_weights(_of_all_processes(torch.stack(self.weights)).cpu().double()).sum(1).tolist()
        for name, more in zip(self.totals, (losses.sum().item(), *of_anchors, float(len(losses))), strict=True):
            self.totals[name] += more
        self.losses, self.weights = [], []
        return losses

    def means(self) -> dict[str, float]:
        """Mean loss and, where the framework has weights W, what `told_of_weights` tells; by name."""
        steps = self.totals[STEPS] or float("nan")
        means = {name: self.totals[name] / steps for name in NAMES}
        return {name: mean for name, mean in means.items() if name == "loss" or mean == mean}


def told_of_weights(W: Tensor) -> Tensor:
    """Four rows (4, S) of the weights W (S, N) of S steps of N anchors.

    The entropy of r_+ in nats, the mean of W, its standard deviation over the anchors, and the share of sum W that the
    hardest ceil(N / 10) anchors carry.
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


def _of_all_processes(W: Tensor) -> Tensor:
    """Weights (S, n) of each process's anchors -> (S, N) of all."""
    gathered = distributed.gather(W, equal=True)  # (processes x S, n)
    return gathered.unflatten(0, (-1, len(W))).transpose(0, 1).flatten(1)
