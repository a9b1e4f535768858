"""Nearest neighbors in feature space, and how well they agree with the labels."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.analysis.clean_sample import CleanSample, clean_sample, label_of
from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.data.subset import subset_index
from dualtemp.evaluation.knn import nearest

IMAGES = 2_000
COUNTS = (1, 5, 20)
ROWS, FOUND = 8, 6  # examples: queries, and neighbors of each
PAIRS = 8


class Neighbors(NamedTuple):
    """The k nearest neighbors of N images: cosine similarities (N, k) in descending order, and positions (N, k)."""

    similarity: Tensor
    index: Tensor


@torch.no_grad()
def nearest_neighbors(features: Tensor, k: int) -> Neighbors:
    """Find the k nearest neighbors of features (N, F) by cosine similarity, or all N - 1 if k is larger.

    An image is not its own neighbor. Ties are broken in favor of the earlier image.
    """
    k = min(k, len(features) - 1)
    similarity, index = (torch.cat(parts) for parts in zip(*nearest(features, features, k + 1), strict=True))
    # Drop the image itself or, if so many are identical that it is not among them, the last one.
    itself = index == torch.arange(len(index), device=index.device)[:, None]
    itself[:, -1] |= ~itself.any(1)
    return Neighbors(similarity[~itself].view(len(index), k), index[~itself].view(len(index), k))


def agreement(labels: Tensor, index: Tensor) -> float | None:
    """Return the share of neighbors (N, k) that have their image's label; images without a label (-1) do not count."""
    found, own = labels[index], labels[:, None]
    known = (found >= 0) & (own >= 0)
    return float((found == own)[known].double().mean()) if known.any() else None


def chance_agreement(labels: Tensor) -> float | None:
    """Return the agreement that randomly drawn neighbors would have."""
    counts = labels[labels >= 0].bincount().double()
    total = counts.sum()
    return float((counts * (counts - 1)).sum() / (total * (total - 1))) if total > 1 else None


def confused_classes(labels: Tensor, index: Tensor, most: int = PAIRS) -> list[tuple[int, int, float]]:
    """List (class, other class, share of the class's neighbors that belong to the other), largest shares first."""
    found, own = labels[index], labels[:, None].expand_as(index)
    known = (found >= 0) & (own >= 0)
    if not known.any():
        return []
    # Only the pairs that occur: a matrix of all classes would not fit into memory for many.
    pairs, counts = torch.stack([own[known], found[known]], 1).unique(dim=0, return_counts=True)  # sorted
    of_class = torch.zeros(int(labels.max()) + 1, dtype=torch.float64).index_add_(0, pairs[:, 0], counts.double())
    shares = counts / of_class[pairs[:, 0]]
    other = pairs[:, 0] != pairs[:, 1]
    shares, order = shares[other].sort(descending=True, stable=True)
    largest = zip(pairs[other][order[:most]].tolist(), shares[:most].tolist(), strict=True)
    return [(own_class, other_class, share) for (own_class, other_class), share in largest]


def choose_queries(sample: CleanSample, count: int = ROWS) -> list[int]:
    """Choose positions of example images in a sample, from different classes if there are labels."""
    labels = None if sample.images.labels is None else sample.labels
    return subset_index(labels, len(sample.index), min(count, len(sample.index)), seed=0).tolist()


def measure_neighbors(run: TrainedRun, images: int = IMAGES) -> dict[str, Any]:
    """Measure how nearest neighbors agree with labels at k = 1, 5, 20; also chance, confused classes and examples.

    images: how many to use at most, from the test set if there is one.
    """
    sample = clean_sample(run, images, pictures=False)
    labels, names = sample.labels, sample.names
    near = nearest_neighbors(sample.features, max(COUNTS))
    here = near.index.shape[1]
    classes = _class_names(sample)
    return {
        "part": sample.part,
        "images": len(names),
        "agreement": {str(k): agreement(labels, near.index[:, :k]) for k in COUNTS if k <= here},
        "chance": chance_agreement(labels),
        "confused": [
            {"class": classes[one], "other": classes[other], "share": share}
            for one, other, share in confused_classes(labels, near.index)
        ],
        "rows": [
            {
                "query": {"name": names[i], "label": label_of(sample.images, int(sample.index[i]))},
                "found": [
                    {"name": names[j], "label": label_of(sample.images, int(sample.index[j])), "s": s}
                    for j, s in zip(near.index[i, :FOUND].tolist(), near.similarity[i, :FOUND].tolist(), strict=True)
                ],
            }
            for i in choose_queries(sample)
        ],
    }


def _class_names(sample: CleanSample) -> list[str]:
    known = list(sample.images.classes)
    return known + [str(label) for label in range(len(known), int(sample.labels.max()) + 1)]
