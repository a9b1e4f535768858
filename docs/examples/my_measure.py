"""A measure of one's own: `dualtemp train --plugin my_measure.py ...` takes it at every evaluation.

The number goes into metrics.jsonl and is shown on the terminal, the run page, compare pages, tables and logs.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from dualtemp.evaluation import measure


@measure(
    "centroid_top1",
    title="Nearest centroid, top-1",
    says="Share of test images nearest to the mean feature of their own class: higher is better.",
    better="higher",
    form="{:.2f} %",
    terminal="centroid {:.2f} %",
)
def nearest_centroid(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor) -> float:
    """Accuracy in % of the nearest class mean on the unit sphere, of features (N, F) and labels (N,)."""
    train, test = F.normalize(train, dim=1), F.normalize(test, dim=1)
    classes = train_labels.unique()
    centroids = torch.stack([train[train_labels == label].mean(0) for label in classes])  # (classes, F)
    answers = classes[torch.cdist(test, centroids).argmin(1)]
    return 100 * (answers == test_labels).double().mean().item()
