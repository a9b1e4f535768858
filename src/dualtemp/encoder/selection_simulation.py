"""Simulate how many labels a way to select saves compared with random selection, on images whose labels are known.

For each seed, a fifth of the images, balanced over the classes, is held out. Each way selects from the rest, the labels
of its selection are revealed, and a linear classifier is fitted to their features and tested on the held-out fifth. All
random draws (the fifth, the random selection, clusters) differ by seed; the fifth is the same for all ways.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.data.subset import HELD_OUT, random_keys, rank_within
from dualtemp.encoder.select import choose
from dualtemp.errors import UserError
from dualtemp.evaluation.few_shot import PENALTY
from dualtemp.evaluation.probe import logistic_regression, standardize

A_CLASS = (1, 2, 5, 10, 20, 50)  # the default budgets, in labels per class on average
HELD = 5  # one image in this many is held out
FURTHER = (2, 4)  # multiples of the largest budget, for random alone, to see when it catches up


class Simulation(NamedTuple):
    """Accuracies in percent, float64 (seeds, budgets), by way; random's may reach further budgets than the others'."""

    budgets: list[int]
    accuracy: dict[str, np.ndarray]
    random_budgets: list[int]
    seeds: int
    images: int
    classes: int

    def needed(self, way: str, place: int) -> float:
        """How many random labels reach the mean accuracy of `way` at a budget, interpolated; inf if none do."""
        wanted = float(self.accuracy[way][:, place].mean())
        curve = np.maximum.accumulate(self.accuracy["random"].mean(0))
        if wanted <= curve[0]:
            return float(self.random_budgets[0])
        above = np.flatnonzero(curve >= wanted)
        if not len(above):
            return math.inf
        right = int(above[0])
        share = (wanted - curve[right - 1]) / (curve[right] - curve[right - 1])
        low, high = (math.log(self.random_budgets[i]) for i in (right - 1, right))
        return math.exp(low + share * (high - low))

    def gain(self, way: str, place: int) -> np.ndarray:
        """Accuracy minus random's at the same budget, (seeds,)."""
        return self.accuracy[way][:, place] - self.accuracy["random"][:, place]


def simulate(
    features: Tensor,
    labels: np.ndarray,
    ways: Sequence[str],
    *,
    budgets: Sequence[int] | None = None,
    seeds: int = 5,
    weights: np.ndarray | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Replay the ways on features (N, F) with labels int64 (N,), -1 for none, which are left out.

    "uncertain" needs labels to begin with: its first budget is random, and each later one builds on the labels so far.

    Args:
        features: (N, F).
        labels: (N,).
        ways: some of `select.WAYS`; random is always included.
        budgets: ascending numbers of labels; default 1, 2, 5, 10, 20, 50 for each class.
        seeds: repetitions.
        weights: W (N,), for "hardest".
        progress: called with the number of seeds done, and of all.
    """
    known = np.flatnonzero(labels >= 0)
    classes = np.unique(labels[known])
    if len(classes) < 2:
        raise UserError(f"a simulation needs labels of at least two classes, there are {len(classes)}")
    features, numbers = features[torch.from_numpy(known)], np.searchsorted(classes, labels[known])
    weights = None if weights is None else weights[known]
    held = int(_held_out(numbers, 0).sum())
    if not held:
        raise UserError("a simulation holds out one of five images of a class: no class has five labeled images")
    pool = len(known) - held
    asked = [len(classes) * each for each in A_CLASS] if budgets is None else sorted(set(budgets))
    kept = [budget for budget in asked if 1 < budget <= pool // 2]
    if not kept or (budgets is not None and kept != asked):
        raise UserError(
            f"budgets go from 2 to half of the {pool:,} images to select from, got {', '.join(map(str, asked))}"
        )
    further = [*kept, *(kept[-1] * times for times in FURTHER if kept[-1] * times <= pool)]
    ways = ["random", *(way for way in ways if way != "random")]
    found = {way: np.zeros((seeds, len(further if way == "random" else kept))) for way in ways}
    for seed in range(seeds):
        held = _held_out(numbers, seed)
        rest, test = np.flatnonzero(~held), np.flatnonzero(held)
        x, y = standardize(features[torch.from_numpy(rest)].float(), features[torch.from_numpy(test)].float())
        truth, answer = torch.from_numpy(numbers[rest]), torch.from_numpy(numbers[test])
        for way in ways:
            some = further if way == "random" else kept
            w = None if weights is None else weights[rest]
            for place, index in enumerate(
                _selections(way, features[torch.from_numpy(rest)], numbers[rest], some, seed, w)
            ):
                at = torch.from_numpy(index)
                fit = logistic_regression(x[at], truth[at], len(classes), PENALTY * x.shape[1])
                right = F.linear(y, *fit).argmax(1) == answer
                found[way][seed, place] = 100 * float(right.double().mean())
        if progress is not None:
            progress(seed + 1, seeds)
    return Simulation(kept, found, further, seeds, len(known), len(classes))


def _selections(
    way: str, features: Tensor, truth: np.ndarray, budgets: Sequence[int], seed: int, weights: np.ndarray | None
) -> list[np.ndarray]:
    """The images that a way has labeled at each budget."""
    if way != "uncertain":
        return [choose(way, features, np.full(len(truth), -1), n, seed=seed, weights=weights).index for n in budgets]
    labels = np.full(len(truth), -1)
    found: list[np.ndarray] = []
    for n in budgets:
        have = len(found[-1]) if found else 0
        several = len(np.unique(labels[labels >= 0])) > 1
        index = choose("uncertain" if several else "random", features, labels, n - have, seed=seed).index
        labels[index] = truth[index]
        found.append(np.flatnonzero(labels >= 0))
    return found


def _held_out(labels: np.ndarray, seed: int) -> np.ndarray:
    """Mask (N,) of a fifth of each class."""
    return rank_within(labels, random_keys(seed, HELD_OUT, len(labels))) % HELD == HELD - 1
