"""Means over an epoch, of all processes, that a checkpoint can hold in its middle."""

import math

import torch
import torch.distributed as dist
from torch import Tensor

from dualtemp import distributed


class EpochMeter:
    """Adds up the loss and the entropy of r_+ of the steps of an epoch.

    The entropy of a step is H = log S - (sum_i W_i log W_i) / S with S = sum_i W_i over all processes' anchors, so that
    two sums per step are all that has to be shared, once for many steps.
    """

    def __init__(self) -> None:
        self.totals = torch.zeros(3, dtype=torch.float64)  # loss, entropy, steps
        self.waiting: list[tuple[Tensor, Tensor]] = []

    def add(self, loss: Tensor, weights: Tensor | None) -> None:
        """Take a step in: its loss, and the inter-anchor weights W of this process's anchors, (N,) or (2, N)."""
        if weights is None:
            sums = torch.full((2,), float("nan"), device=loss.device)
        else:
            first = weights if weights.ndim == 1 else weights[0]
            sums = torch.stack((first.sum(), torch.special.xlogy(first, first).sum()))
        self.waiting.append((loss.detach(), sums))

    def settle(self) -> Tensor:
        """Share what waits with the other processes, and add it up; returns the losses of these steps on the CPU."""
        if not self.waiting:
            return torch.empty(0, dtype=torch.float64)
        losses = torch.stack([loss for loss, _ in self.waiting]).cpu().double()  # MPS knows no float64
        sums = torch.stack([s for _, s in self.waiting])
        if distributed.world_size() > 1:
            dist.all_reduce(sums)
        total, weighted = sums.cpu().double().unbind(1)
        entropies = torch.log(total) - weighted / total
        self.totals += torch.stack((losses.sum(), entropies.sum(), torch.tensor(float(len(losses)))))
        self.waiting = []
        return losses

    def means(self) -> dict[str, float]:
        """Mean loss and, where the framework has weights W, mean entropy of r_+ in nats."""
        loss, entropy, steps = self.totals.tolist()
        return {"loss": loss / steps, **({} if math.isnan(entropy) else {"entropy": entropy / steps})}
