"""Compare a run with its start during training: kNN before the first step, and whether training has made it worse.

Test images are not used for this: a tenth of the training images is held out of training and classified by kNN before
the first step and after each evaluated epoch. As in McNemar's test, the images are counted that only one of the two
gets right. Images that the encoder learns from would not do: it learns to tell each of them from all others, and kNN
accuracy among them falls even where that of new images rises (docs/results/starts).
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
    which of these the start classifies correctly; seen: which of them could be read; both bool (M,) on the CPU. None
    and 0 until measured.
    """

    knn_top1: float | None = None
    k: int = 0
    right: Tensor | None = None
    seen: Tensor | None = None

    def look(
        self, bank: Tensor, bank_labels: Tensor, features: Tensor, labels: Tensor, seen: Tensor
    ) -> dict[str, float]:
        """Classify held-out images by kNN in a bank (N, F): the first call records the start, later ones compare to it.

        seen: which of the M held-out images can be read now, bool (M,); features and labels are of these. Only images
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
        if len(seen) != len(self.seen):  # an old checkpoint, which does not record the images that could be read
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
        """Continue from what `state_dict` returned."""
        self.knn_top1, self.k, self.right = state["knn_top1"], state["k"], state["right"]
        self.seen = state.get("seen")
        if self.right is not None and self.seen is None:
            self.seen = torch.ones_like(self.right)


def describe_fall(metrics: dict[str, Any]) -> str:
    """A sentence on how far an epoch is below the start, and which encoder is kept."""
    return (
        f"epoch {metrics['epoch']} is below the start: kNN gets {metrics['held_out_lost']} held-out images wrong that "
        f"it had right, and {metrics['held_out_gained']} right that it had wrong; the run keeps the encoder of the "
        "measurement before"
    )
