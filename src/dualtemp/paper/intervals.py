"""Confidence intervals of differences of means, with few seeds. Needs no torch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, variance

from dualtemp.paper.t_distribution import t_quantile


@dataclass(frozen=True)
class Interval:
    """A difference of means with its confidence interval; low and high are None, with the reason, if there is none."""

    effect: float
    low: float | None = None
    high: float | None = None
    df: int = 0
    why: str = ""

    @property
    def bounds(self) -> tuple[float, float]:
        """low and high, where there are any."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high


@dataclass(frozen=True)
class Pooled:
    """A variance within cells, and its degrees of freedom."""

    variance: float
    df: int


def pooled_variance(cells: Iterable[list[float]]) -> Pooled:
    """The variance within cells of a table, pooled over those with at least two values."""
    many = [values for values in cells if len(values) > 1]
    df = sum(len(values) - 1 for values in many)
    squares = sum((len(values) - 1) * variance(values) for values in many)
    return Pooled(squares / df if df else math.nan, df)


def difference(a: list[float], b: list[float], pooled: Pooled, confidence: float) -> Interval:
    """mean(a) - mean(b), each with at least one value, with an interval of Student's t from a pooled variance."""
    effect = fmean(a) - fmean(b)
    if pooled.df == 0:
        return Interval(effect, why="one seed: no interval")
    return _interval(effect, pooled.variance * (1 / len(a) + 1 / len(b)), pooled.df, confidence)


def paired_difference(a: dict[int, float], b: dict[int, float], confidence: float) -> Interval:
    """mean(a - b) over the seeds that both have."""
    differences = [a[seed] - b[seed] for seed in a if seed in b]
    if not differences:
        return Interval(math.nan, why="no seed in common")
    if len(differences) == 1:
        return Interval(differences[0], why="one seed: no interval")
    n = len(differences)
    return _interval(fmean(differences), variance(differences) / n, n - 1, confidence)


def _interval(effect: float, squared_error: float, df: int, confidence: float) -> Interval:
    if squared_error == 0:  # seeds that agree to the last digit are no sample
        return Interval(effect, df=df, why="the seeds do not differ at all: no interval")
    half = t_quantile((1 + confidence) / 2, df) * math.sqrt(squared_error)
    return Interval(effect, effect - half, effect + half, df)
