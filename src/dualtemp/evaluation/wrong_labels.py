"""Find labels that are probably wrong: neighbors and a classifier that have not seen the label predict another."""

from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.evaluation.accuracy import predicted
from dualtemp.evaluation.arrays import Array, as_features, as_labels
from dualtemp.evaluation.calibration import fit_temperature
from dualtemp.evaluation.classifier import cross_fitted_logits
from dualtemp.evaluation.knn import nearest
from dualtemp.evaluation.probe import fit_probe, standardization

NEIGHBORS = 10  # number of voting neighbors
VOTE_TEMPERATURE = 0.1  # as in `knn_votes`


class WrongLabels(NamedTuple):
    """How suspicious each of N labels is.

    score: (N,), 1 - mean probability of the given label by neighbors and classifier: 0 is fine, 1 is surely wrong;
    suggested: int64 (N,), the likeliest class by both together; suspected: bool (N,), whether both name a class other
    than the given one; order: int64, the suspected images, the highest score first.
    """

    score: Tensor
    suggested: Tensor
    suspected: Tensor
    order: Tensor


@torch.no_grad()
def suspected_wrong_labels(features: Array, labels: Array, *, seed: int = 0) -> WrongLabels:
    """Find labels that neighbors and a cross-fitted classifier both contradict.

    An image does not vote on its own label: its neighbors are others, and its classifier was fitted to other folds.
    The only image of a class is never suspected; its score is 0.

    Args:
        features: (N, F).
        labels: (N,), from 0; give only images that have one.
        seed: of the folds.
    """
    x = as_features(features).float()
    y = as_labels(labels, len(x))
    classes = int(y.max()) + 1
    if len(y.unique()) < 2 or len(y) < 3:
        none = torch.zeros(len(y))
        return WrongLabels(none, y, none.bool(), none.long()[:0])
    mean, scale = standardization(x)
    _, _, penalty = fit_probe((x - mean) / scale, y, classes, seed=seed)
    logits = cross_fitted_logits(x, y, classes, penalty, seed=seed)
    learned = (logits / fit_temperature(logits, y)).softmax(1)
    near = neighbor_votes(x, y, classes)
    both = (learned + near) / 2
    comparable = y.bincount(minlength=classes)[y] > 1  # a class of one image cannot be predicted by other images
    score = (1 - both.gather(1, y[:, None])[:, 0]).where(comparable, 0.0)
    suspected = (predicted(learned) != y) & (predicted(near) != y) & comparable
    order = suspected.nonzero()[:, 0]
    others = both.scatter(1, y[:, None], -1.0)  # both may contradict the label without naming the same class
    suggested = predicted(both).where(~suspected, predicted(others))
    return WrongLabels(score, suggested, suspected, order[score[order].argsort(descending=True, stable=True)])


@torch.no_grad()
def neighbor_votes(features: Array, labels: Array, classes: int, k: int = NEIGHBORS) -> Tensor:
    """Share of the votes (N, classes) of the k nearest other images, weighted by exp(cosine / .1)."""
    x = as_features(features)
    y = as_labels(labels, len(x))
    votes, done = [], 0
    for similarity, index in nearest(x, x, min(k + 1, len(x))):
        others = index != torch.arange(done, done + len(index))[:, None]
        others[others.all(1), -1] = False  # the image itself is missing if k + 1 copies precede it: drop the last
        done += len(index)
        similarity, index = (part[others].unflatten(0, (len(part), -1)) for part in (similarity, index))
        weight = ((similarity - similarity[:, :1]) / VOTE_TEMPERATURE).exp()
        found = weight.new_zeros(len(index), classes).scatter_add_(1, y[index], weight)
        votes.append(found / found.sum(1, keepdim=True))
    return torch.cat(votes)
