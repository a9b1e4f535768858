"""Statistical power: how likely a difference would be shown, simulated from measured variances. Needs no torch.

A run's result is drawn as cell + seed + rest, all normal: the seed's part is shared by runs with the same seed (images,
initial weights, order). On different kinds of machines nothing is shared: rounding alone changes a run as much as
another seed does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualtemp.intervals import Looks, pooled_variance, residual_variance
from dualtemp.t_distribution import t_quantile

DRAWS, SEED = 20_000, 0
FIXED, TWO_LOOKS = (3, 5, 10), Looks(0.9706, (5, 10))


@dataclass(frozen=True)
class Spread:
    """Standard deviations of runs: of the part shared by a seed, and of the rest; cells: number behind them."""

    of_seeds: float
    of_rest: float
    cells: int


@dataclass(frozen=True)
class Power:
    """The power of an interval.

    shows: the chance that it shows the effect; falsely: the chance that it shows one, on that side, when there is none;
    margin: the smallest within which equal cells are shown to be equal in four of five cases.
    """

    shows: float
    falsely: float
    margin: float


def estimate_spread(cells: Sequence[dict[int, float]]) -> Spread | None:
    """Estimate the spread from results: the variance within cells, split into the seeds' part and the rest."""
    many = [values for values in cells if len(values) > 1]
    whole, rest = pooled_variance(list(values.values()) for values in many), residual_variance(many)
    if not whole.df or not rest.df:
        return None
    return Spread(math.sqrt(max(0.0, whole.variance - rest.variance)), math.sqrt(rest.variance), len(many))


def power(effect: float, spread: Spread, looks: Looks, draws: int = DRAWS) -> tuple[Power, Power]:
    """Simulate the power of a claim's two intervals, pooled and seed by seed, to show that one cell is above another.

    Pooled: from the variance within cells, which counts the seeds' part as noise. Seed by seed: from the residual
    variance. An effect that one look shows counts as shown.
    """
    rng = np.random.default_rng(SEED)
    values = spread.of_rest * rng.standard_normal((draws, spread.cells, max(looks.seeds)))
    values += spread.of_seeds * rng.standard_normal((draws, 1, max(looks.seeds)))
    # For each interval: distance to zero with the effect and without it, and to the interval's far end.
    reach = np.full((2, 3, draws), np.inf)
    for seeds in looks.seeds:
        part = values[:, :, :seeds]
        difference = (part[:, 0] - part[:, 1]).mean(1)
        within = part - part.mean(2, keepdims=True)
        beside = within - within.mean(1, keepdims=True)
        for kind, (left, cells) in enumerate(((within, spread.cells), (beside, spread.cells - 1))):
            df = cells * (seeds - 1)
            half = t_quantile((1 + looks.level) / 2, df) * np.sqrt(np.square(left).sum((1, 2)) / df * 2 / seeds)
            found = half - difference - effect, half - difference, half + np.abs(difference)
            reach[kind] = np.minimum(reach[kind], found)
    pooled, by_seed = (
        Power(float((shown < 0).mean()), float((falsely < 0).mean()), float(np.quantile(margin, 0.8)))
        for shown, falsely, margin in reach
    )
    return pooled, by_seed


def describe_power(cells: Sequence[dict[int, float]], effect: float, looks: Looks = TWO_LOOKS) -> list[str]:
    """Describe, line by line, the spread of these cells and what 3, 5, 10 seeds and several looks could show."""
    spread = estimate_spread(cells)
    if spread is None:
        return ["  fewer than two cells with two seeds in common: the spread cannot be estimated"]
    lines = [
        f"  spread of runs {math.hypot(spread.of_seeds, spread.of_rest):.2f}: seeds {spread.of_seeds:.2f}, "
        f"the rest {spread.of_rest:.2f} ({spread.cells} cells)",
        f"  {'':<24}{'pooled: shows  falsely  margin':>32}{'seed by seed: shows  falsely  margin':>40}",
    ]
    several = f"{' and '.join(map(str, looks.seeds))} seeds, {100 * looks.level:g} %"
    for name, planned in (*((f"{n} seeds, 95 %", Looks(0.95, (n,))) for n in FIXED), (several, looks)):
        words = [f"{p.shows:>7.0%}{p.falsely:>9.1%}{p.margin:>8.2f}" for p in power(effect, spread, planned)]
        lines.append(f"  {name:<24}{words[0]:>32}{words[1]:>40}")
    return lines
