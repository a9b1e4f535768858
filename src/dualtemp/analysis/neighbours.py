"""Nearest neighbours in the space of features, and how far they agree with labels."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dualtemp.analysis.clean_sample import CleanSample, clean_sample, label_of
from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.data.subset import subset_index
from dualtemp.evaluation.knn import nearest

IMAGES = 2_000
COUNTS = (1, 5, 20)
ROWS, FOUND = 8, 6  # examples: queries, and neighbours of each
PAIRS = 8


class Neighbours(NamedTuple):
    """Of N images the k nearest others: cosine similarities (N, k), falling, and places (N, k)."""

    similarity: Tensor
    index: Tensor


@torch.no_grad()
def nearest_others(features: Tensor, k: int) -> Neighbours:
    """The k nearest others of features (N, F), by cosine; k = N - 1 if there are no more. An image is not its own.

    Of equally similar ones the earlier comes first.
    """
    k = min(k, len(features) - 1)
    similarity, index = (torch.cat(parts) for parts in zip(*nearest(features, features, k + 1), strict=True))
    # Itself is left out; where so many are the same that it is not among them, the last.
    itself = index == torch.arange(len(index), device=index.device)[:, None]
    itself[:, -1] |= ~itself.any(1)
    return Neighbours(similarity[~itself].view(-1, k), index[~itself].view(-1, k))


def agreement(labels: Tensor, index: Tensor) -> float | None:
    """Share of the neighbours (N, k) that have the label of their image; what has no label (-1) does not count."""
    found, own = labels[index], labels[:, None]
    known = (found >= 0) & (own >= 0)
    return float((found == own)[known].double().mean()) if known.any() else None


def chance(labels: Tensor) -> float | None:
    """The agreement to expect of neighbours drawn at random."""
    counts = labels[labels >= 0].bincount().double()
    total = counts.sum()
    return float((counts * (counts - 1)).sum() / (total * (total - 1))) if total > 1 else None


def confused(labels: Tensor, index: Tensor, most: int = PAIRS) -> list[tuple[int, int, float]]:
    """(class, other class, share of the neighbours of its images that are of the other): the largest shares first."""
    found, own = labels[index], labels[:, None].expand_as(index)
    known = (found >= 0) & (own >= 0)
    classes = int(labels.max()) + 1
    if classes < 2 or not known.any():
        return []
    table = torch.bincount(own[known] * classes + found[known], minlength=classes**2).view(classes, classes).double()
    table = table / table.sum(1, keepdim=True).clamp_min(1)
    table.fill_diagonal_(0)
    shares, places = table.flatten().sort(descending=True, stable=True)
    largest = zip(shares[:most].tolist(), places[:most].tolist(), strict=True)
    return [(place // classes, place % classes, share) for share, place in largest if share > 0]


def queries(sample: CleanSample, count: int = ROWS) -> list[int]:
    """Places in a sample of images to show the neighbours of: of different classes where there are labels."""
    labels = None if sample.images.labels is None else sample.labels
    return subset_index(labels, len(sample.index), min(count, len(sample.index)), seed=0).tolist()


def neighbours(run: TrainedRun, images: int = IMAGES) -> dict[str, Any]:
    """What lies near what: agreement with labels at k = 1, 5, 20, its chance, confused classes, examples by name.

    images: at most so many, of the test set where there is one.
    """
    sample = clean_sample(run, images, pictures=False)
    labels, names = sample.labels, sample.names
    near = nearest_others(sample.features, max(COUNTS))
    here = near.index.shape[1]
    classes = _class_names(sample)
    return {
        "part": sample.part,
        "images": len(names),
        "agreement": {str(k): agreement(labels, near.index[:, :k]) for k in COUNTS if k <= here},
        "chance": chance(labels),
        "confused": [
            {"class": classes[one], "other": classes[other], "share": share}
            for one, other, share in confused(labels, near.index)
        ],
        "rows": [
            {
                "query": {"name": names[i], "label": label_of(sample.images, int(sample.index[i]))},
                "found": [
                    {"name": names[j], "label": label_of(sample.images, int(sample.index[j])), "s": s}
                    for j, s in zip(near.index[i, :FOUND].tolist(), near.similarity[i, :FOUND].tolist(), strict=True)
                ],
            }
            for i in queries(sample)
        ],
    }


def _class_names(sample: CleanSample) -> list[str]:
    known = list(sample.images.classes)
    return known + [str(label) for label in range(len(known), int(sample.labels.max()) + 1)]
