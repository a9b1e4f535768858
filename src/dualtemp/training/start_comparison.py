"""A run compared with its start while it trains: kNN before the first step, and whether training has cost too much.

Test images decide nothing here: a tenth of the training images is held out of training, classified by its nearest
others before the first step and after an epoch, and the images that only one of the two gets right are counted, as
McNemar's test does. Images that the encoder has learned from would not do: it learns to tell each of them from all
others, and kNN among them falls where that of new images rises (docs/results/starts).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dualtemp.evaluation.knn import best_k, knn_votes


@dataclass
class StartComparison:
    """What is known of the start. `state_dict` is kept in checkpoints.

    knn_top1: its kNN accuracy in %, measured as after every epoch; k: neighbors that vote on held-out images; right:
    which of these it classifies right, and seen: which of them it could read, bool (M,) on the CPU. None and 0 before
    they are measured.
    """

    knn_top1: float | None = None
    k: int = 0
    right: Tensor | None = None
    seen: Tensor | None = None

    def look(
        self, bank: Tensor, bank_labels: Tensor, features: Tensor, labels: Tensor, seen: Tensor
    ) -> dict[str, float]:
        """Measure held-out images by a bank (N, F): of the start at the first call, compared with it later.

        seen: which of the M held-out images can be read now, bool (M,); features and labels are theirs. The images
        that could be read both times are compared.
        """
        if self.right is None:
            self.k = best_k(bank, bank_labels)
        classes = 1 + max(int(bank_labels.max()), int(labels.max()))
        votes = knn_votes(bank, bank_labels, features, classes, k=self.k)
        right = torch.zeros(len(seen), dtype=torch.bool)
        right[seen] = (votes.argmax(1) == labels.to(votes.device)).cpu()
        if self.right is None or self.seen is None:
            self.right, self.seen = right, seen
        if len(seen) != len(self.seen):  # a checkpoint of before did not tell which images it had seen
            return {}
        both = seen & self.seen
        return {
            "held_out_knn_top1": 100 * float(right[seen].double().mean()),
            "held_out_gained": int((right & ~self.right & both).sum()),
            "held_out_lost": int((self.right & ~right & both).sum()),
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything, for a checkpoint."""
        return {"knn_top1": self.knn_top1, "k": self.k, "right": self.right, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with what `state_dict` returned."""
        self.knn_top1, self.k, self.right = state["knn_top1"], state["k"], state["right"]
        self.seen = state.get("seen")
        if self.right is not None and self.seen is None:
            self.seen = torch.ones_like(self.right)


def describe_fall(metrics: dict[str, Any]) -> str:
    """Say in a sentence by how much an epoch is below the start, and what is kept."""
    return (
        f"epoch {metrics['epoch']} is below the start: kNN gets {metrics['held_out_lost']} held-out images wrong that "
        f"it had right, and {metrics['held_out_gained']} right that it had wrong; the run keeps the encoder of the "
        "measurement before"
    )
