"""Means over an epoch, of all processes, that a checkpoint can hold in its middle."""

import torch
from torch import Tensor

from dualtemp import distributed
from dualtemp.hardness import entropy
from dualtemp.training.thresholds import hardest_tenth

NAMES = ("loss", "entropy", "W_mean", "W_spread", "hardest_tenth")
_OLDER_NAMES = NAMES[:2]  # of checkpoints that know no more


class EpochMeter:
    """Adds up the steps of an epoch: the loss, and how the anchors of all processes weigh against each other.

    totals: those of a checkpoint, to go on from. In the middle of an epoch, what an older checkpoint has not added up
    is unknown (nan), and left out of that epoch's means.
    """

    def __init__(self, totals: Tensor | None = None) -> None:
        self.totals = torch.zeros(len(NAMES) + 1, dtype=torch.float64)  # sums over steps by name; the steps
        if totals is not None:
            known = len(totals) - 1
            assert known in (len(NAMES), len(_OLDER_NAMES))
            self.totals[:known], self.totals[-1] = totals[:-1], totals[-1]
            self.totals[known:-1] = 0.0 if totals[-1] == 0 else float("nan")
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
        of_anchors = torch.full((len(NAMES) - 1,), float("nan"), dtype=torch.float64)
        if self.weights:
            of_anchors = told_of_weights(_of_all_processes(torch.stack(self.weights)).cpu().double()).sum(1)
        self.totals += torch.cat((losses.sum().view(1), of_anchors, torch.tensor([float(len(losses))])))
        self.losses, self.weights = [], []
        return losses

    def means(self) -> dict[str, float]:
        """Mean loss and, where the framework has weights W, what `told_of_weights` tells; by name."""
        means = (self.totals[:-1] / self.totals[-1]).tolist()
        return {name: mean for name, mean in zip(NAMES, means, strict=True) if name == "loss" or mean == mean}


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


def _of_all_processes(W: Tensor) -> Tensor:
    """Weights (S, n) of each process's anchors -> (S, N) of all."""
    gathered = distributed.gather(W, equal=True)  # (processes x S, n)
    return gathered.unflatten(0, (-1, len(W))).transpose(0, 1).flatten(1)
