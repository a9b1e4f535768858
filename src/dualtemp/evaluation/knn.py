"""Weighted nearest neighbors (Wu et al. 2018): how well features classify without further training."""

from collections.abc import Iterator

import torch
from torch import Tensor

from dualtemp.evaluation.accuracy import Accuracy, top_accuracy
from dualtemp.losses.similarity import true_precision, unit

# The similarity matrix is computed one tile at a time: 16 MiB on a CPU, 64 on an accelerator.
TEST_ROWS = {"cpu": 256, "cuda": 1024}
TRAIN_ROWS = 16384
KS = (1, 5, 10, 20, 50, 100, 200)  # candidates of `best_k`


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    k: int = 200,
    temperature: float = 0.1,
) -> Accuracy:
    """Top-1 and top-5 accuracy of the votes of `knn_votes`; of classes with equal votes the lower number ranks first.

    Args:
        train_features: the bank, (M, F), of any norm.
        train_labels: (M,), from 0.
        test_features: (N, F).
        test_labels: (N,), from 0.
        k: number of neighbors that vote; all of the bank if it is smaller.
        temperature: a neighbor of cosine similarity s votes with weight exp(s / temperature); inf: equal weights.
    """
    if len(test_labels) != len(test_features) or len(test_labels) == 0:
        raise ValueError(f"knn: {len(test_features)} test features and {len(test_labels)} labels; give one per feature")
    test_labels = test_labels.to(test_features.device)
    classes = 1 + max(int(train_labels.max()), int(test_labels.max()))
    votes = knn_votes(train_features, train_labels, test_features, classes, k=k, temperature=temperature)
    return top_accuracy(votes, test_labels)


@torch.no_grad()
def knn_votes(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    classes: int,
    *,
    k: int = 200,
    temperature: float = 0.1,
) -> Tensor:
    """Votes (N, classes) of the k nearest of the bank, each row relative to its nearest neighbor's vote of 1.

    Of equally similar neighbors the earlier one in the bank counts as nearer. Arguments as in `knn_accuracy`.
    """
    if len(train_labels) != len(train_features) or len(train_labels) == 0:
        raise ValueError(f"knn: {len(train_features)} features in the bank and {len(train_labels)} labels")
    if k < 1 or not temperature > 0:
        raise ValueError(f"knn: k must be at least 1 and temperature above 0, got k={k}, temperature={temperature}")
    labels = train_labels.to(test_features.device)
    votes = []
    for similarity, index in nearest(test_features, train_features, k):
        # Relative to the nearest: the same ranking, and no overflow at small temperatures.
        weight = ((similarity - similarity[:, :1]) / temperature).exp()
        votes.append(weight.new_zeros(len(weight), classes).scatter_add_(1, labels[index], weight))
    return torch.cat(votes)


@torch.no_grad()
def best_k(features: Tensor, labels: Tensor, *, temperature: float = 0.1, most: int = 2_000) -> int:
    """Choose the k of KS with the best leave-one-out accuracy inside the bank.

    Of equally good values the smallest is taken, which small classes can fill. No test image and no randomness is used.

    Args:
        features: the bank, (M, F).
        labels: (M,), from 0.
        temperature: as in `knn_accuracy`.
        most: number of images to classify, evenly spaced; the whole bank votes.
    """
    if len(labels) != len(features) or len(labels) == 0:
        raise ValueError(f"knn: {len(features)} features in the bank and {len(labels)} labels")
    if len(labels) == 1:
        return 1
    labels = labels.to(features.device)
    sizes = [k for k in KS if k < len(features)]
    asked = torch.arange(len(features), device=features.device)
    if len(asked) > most:
        # On the CPU, because MPS has no float64.
        asked = torch.linspace(0, len(features) - 1, most, dtype=torch.float64).long().to(features.device)
    right = torch.zeros(len(sizes), dtype=torch.int64)
    classes = 1 + int(labels.max())
    for own, similarity, index in _nearest_others(features, asked, sizes[-1]):
        weight = ((similarity - similarity[:, :1]) / temperature).exp()
        votes = weight.new_zeros(len(own), classes)
        for place, (start, end) in enumerate(zip([0, *sizes], sizes, strict=False)):
            votes.scatter_add_(1, labels[index[:, start:end]], weight[:, start:end])
            right[place] += int((votes.argmax(1) == labels[own]).sum())
    return sizes[int(right.argmax())]  # the first of the largest


def _nearest_others(features: Tensor, asked: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield batches of rows (B,) of `asked`, with the similarities and rows (B, k) of their k nearest others."""
    done = 0
    for similarity, index in nearest(features[asked], features, k + 1):
        own = asked[done : done + len(index)]
        done += len(index)
        others = index != own[:, None]
        others[others.all(1), -1] = False  # the image itself is missing if k + 1 copies precede it: drop the last
        similarity, index = (part[others].unflatten(0, (len(own), -1)) for part in (similarity, index))
        yield own, similarity, index


@torch.no_grad()
def nearest(queries: Tensor, bank: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield, for B queries at a time, cosine similarities (B, k), descending, and bank rows (B, k) of the k nearest.

    queries (N, F) and bank (M, F) may have any norm; k is at most M. Of equally similar rows the earlier counts as
    nearer. Memory does not grow with N times M.
    """
    bank, queries = unit(bank, queries)
    bank = bank.to(queries.device)
    height = TEST_ROWS.get(queries.device.type, TEST_ROWS["cuda"])
    for rows in queries.split(height):
        with true_precision(queries.device):
            found = _nearest(rows, bank, min(k, len(bank)))
        yield found


def _nearest(rows: Tensor, bank: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Similarities (B, k), descending, and bank rows (B, k) of the k nearest to unit rows (B, F)."""
    similarity = rows.new_empty(len(rows), 0)
    index = torch.empty(len(rows), 0, dtype=torch.int64, device=rows.device)
    for start in range(0, len(bank), TRAIN_ROWS):
        tile = rows @ bank[start : start + TRAIN_ROWS].T  # (B, <= TRAIN_ROWS)
        best = _earliest_largest(tile, min(k, tile.shape[1]))
        # Equal candidates are in the order of the bank, and a stable sort keeps them so.
        candidates = torch.cat([similarity, tile.gather(1, best)], 1)
        places = torch.cat([index, best + start], 1)
        similarity, order = candidates.sort(dim=1, descending=True, stable=True)
        similarity, index = similarity[:, :k], places.gather(1, order[:, :k])
    return similarity, index


def _earliest_largest(tile: Tensor, k: int) -> Tensor:
    """Columns (B, k), ascending, of the k largest values of each row; of equal values the earlier columns are taken."""
    values, columns = tile.topk(k, dim=1)
    # topk picks arbitrarily among values equal to the k-th: sort the (rare) rows that have such ties.
    tied = ((tile >= values[:, -1:]).sum(1) > k).nonzero()[:, 0]
    if len(tied):
        columns[tied] = tile[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return columns.sort(dim=1).values
