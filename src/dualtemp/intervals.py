"""Confidence intervals of means and their differences, with few seeds. Needs no torch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from dualtemp.t_distribution import t_quantile


@dataclass(frozen=True)
class Interval:
    """A mean, or a difference of means, with its confidence interval.

    low and high are None if there is no interval; `why` says why.
    """

    effect: float
    low: float | None = None
    high: float | None = None
    df: int = 0
    why: str = ""

    @property
    def bounds(self) -> tuple[float, float]:
        """low and high of an interval that exists."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    def mirrored(self) -> "Interval":
        """The same difference the other way round, of an interval that exists."""
        low, high = self.bounds
        return Interval(-self.effect, -high, -low, self.df, self.why)


@dataclass(frozen=True)
class Pooled:
    """A variance pooled over the cells of a table, with its degrees of freedom."""

    variance: float
    df: int


@dataclass(frozen=True)
class Looks:
    """When results are looked at: after each of these numbers of seeds; if there are none, once, with all seeds.

    level: the confidence of each look.
    """

    level: float
    seeds: tuple[int, ...] = ()


def bonferroni(confidence: float, comparisons: int) -> float:
    """Return the confidence that each interval needs so that all of them cover together with `confidence`."""
    return 1 - (1 - confidence) / max(1, comparisons)


def pooled_variance(cells: Iterable[list[float]]) -> Pooled:
    """Pool the variance within cells over those with at least two values."""
    many = [values for values in cells if len(values) > 1]
    df = sum(len(values) - 1 for values in many)
    squares = sum((len(values) - 1) * variance(values) for values in many)
    return Pooled(squares / df if df else math.nan, df)


def residual_variance(cells: Iterable[dict[int, float]]) -> Pooled:
    """Return the variance left after a least-squares fit of an effect for every cell and every seed.

    Runs of one seed share their images, initial weights and order, so cells rise and fall together with the seed.
    """
    import numpy as np  # imported here because listing runs does not need it

    rows = [(cell, seed, value) for cell, values in enumerate(cells) for seed, value in values.items()]
    if not rows:
        return Pooled(math.nan, 0)
    of_cell, of_seed, measured = map(np.array, zip(*rows, strict=True))
    members = [np.equal.outer(names, np.unique(names)) for names in (of_cell, of_seed)]
    design = np.hstack(members).astype(float)
    effects, _, rank, _ = np.linalg.lstsq(design, measured, rcond=None)
    df = len(measured) - int(rank)
    return Pooled(float(np.sum((measured - design @ effects) ** 2)) / df if df else math.nan, df)


def mean_interval(values: Sequence[float], confidence: float) -> Interval:
    """Return the mean of at least one value, with its Student's t interval."""
    if len(values) == 1:
        return Interval(values[0], why="one seed: no interval")
    return _interval(fmean(values), variance(values) / len(values), len(values) - 1, confidence)


def difference(a: list[float], b: list[float], pooled: Pooled, confidence: float) -> Interval:
    """Return mean(a) - mean(b), each of at least one value, with a Student's t interval from a pooled variance."""
    effect = fmean(a) - fmean(b)
    if pooled.df == 0:
        return Interval(effect, why="one seed: no interval")
    return _interval(effect, pooled.variance * (1 / len(a) + 1 / len(b)), pooled.df, confidence)


def paired_difference(
    a: dict[int, float], b: dict[int, float], confidence: float, beside_seeds: Pooled | None = None
) -> Interval:
    """Return mean(a - b) over common seeds; its error comes from these differences or, if given, `beside_seeds`."""
    differences = list(paired_differences(a, b).values())
    n = len(differences)
    if n == 0:
        return Interval(math.nan, why="no seed in common")
    if beside_seeds is not None and beside_seeds.df > 0:
        return _interval(fmean(differences), 2 * beside_seeds.variance / n, beside_seeds.df, confidence)
    if n == 1:
        return Interval(differences[0], why="one seed: no interval")
    return _interval(fmean(differences), variance(differences) / n, n - 1, confidence)


def paired_differences(a: dict[int, float], b: dict[int, float]) -> dict[int, float]:
    """Return a - b for each common seed, without the spurious digits that rounding of a and b leaves.

    If every seed gains the same five images of a thousand, differences are equal, and there is no spread to test by.
    """
    found = {}
    for seed in (seed for seed in a if seed in b):
        largest = max(abs(a[seed]), abs(b[seed]))
        found[seed] = round(a[seed] - b[seed], 12 - math.ceil(math.log10(largest))) if largest else 0.0
    return found


def _interval(effect: float, squared_error: float, df: int, confidence: float) -> Interval:
    if squared_error == 0:  # seeds that agree to the last digit are no sample
        return Interval(effect, df=df, why="the seeds do not differ at all: no interval")
    half = t_quantile((1 + confidence) / 2, df) * math.sqrt(squared_error)
    return Interval(effect, effect - half, effect + half, df)
