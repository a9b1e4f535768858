"""A run compared with its start while it trains: kNN before the first step, and whether training has paid so far.

Test images decide nothing here: each training image is classified by the others (leave one out), before training and
after an epoch, and the images that only one of the two gets right are counted, as McNemar's test does.
"""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from dualtemp.evaluation.knn import best_k, leave_one_out

CLEAR = 1.645  # standard errors: chance alone falls so far below once in 20 times


@dataclass
class StartComparison:
    """What is known of the start. `state_dict` is kept in checkpoints.

    knn_top1: its kNN accuracy in %, measured as after every epoch; k: neighbors that vote among the training images;
    right: which of these it classifies right, bool (M,) on the CPU. None and empty before it is measured.
    """

    knn_top1: float | None = None
    k: int = 0
    right: Tensor | None = None

    def look(self, features: Tensor, labels: Tensor) -> dict[str, float]:
        """Measure training images (M, F) with labels (M,): of the start at the first call, compared with it later."""
        if self.right is None:
            self.k = best_k(features, labels)
        if len(labels) < 2:
            return {}
        right = leave_one_out(features, labels, self.k).cpu()
        if self.right is None:
            self.right = right
        if len(right) != len(self.right):  # a file has become unreadable meanwhile
            return {}
        return {
            "train_knn_top1": 100 * float(right.double().mean()),
            "train_gained": int((right & ~self.right).sum()),
            "train_lost": int((self.right & ~right).sum()),
        }

    def measured(self, found: dict[str, Any]) -> None:
        """Keep what `evaluate` has measured of the start."""
        self.knn_top1 = found.get("knn_top1")

    def state_dict(self) -> dict[str, Any]:
        """Everything, for a checkpoint."""
        return {"knn_top1": self.knn_top1, "k": self.k, "right": self.right}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with what `state_dict` returned."""
        self.knn_top1, self.k, self.right = state["knn_top1"], state["k"], state["right"]


def clearly_below(metrics: dict[str, Any]) -> bool:
    """Whether an epoch's metrics show more training images lost than gained since the start, beyond chance."""
    gained, lost = metrics.get("train_gained"), metrics.get("train_lost")
    if gained is None or lost is None or lost <= gained:
        return False
    return lost - gained > CLEAR * math.sqrt(gained + lost)


def describe_fall(metrics: dict[str, Any]) -> str:
    """Say in a sentence by how much an epoch is below the start, and what is kept."""
    return (
        f"epoch {metrics['epoch']} is below the start: kNN gets {metrics['train_lost']} training images wrong that it "
        f"had right, and {metrics['train_gained']} right that it had wrong; the run keeps the encoder of the "
        "measurement before"
    )
