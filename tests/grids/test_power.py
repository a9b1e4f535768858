"""Power by simulation, against scipy's and against the intervals of the claims themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from dualtemp.cli import main
from dualtemp.grids.power import TWO_LOOKS, Spread, estimate_spread, power
from dualtemp.intervals import (
    Looks,
    difference,
    paired_difference,
    pooled_variance,
    residual_variance,
)

CELLS = Path(__file__).parents[2] / "docs" / "results" / "mini" / "cells"


@pytest.mark.parametrize(("cells", "seeds", "effect"), [(2, 5, 1.0), (8, 3, 0.7), (8, 10, 0.3)])
def test_one_look_has_the_power_of_the_t_test(cells: int, seeds: int, effect: float) -> None:
    pooled, by_seed = power(effect, Spread(0.0, 0.6, cells), Looks(0.95, (seeds,)))
    for found, df in ((pooled, cells * (seeds - 1)), (by_seed, (cells - 1) * (seeds - 1))):
        shift = effect / (0.6 * np.sqrt(2 / seeds))
        assert found.shows == pytest.approx(stats.nct.sf(stats.t.ppf(0.975, df), df, shift), abs=0.012)
        assert found.falsely == pytest.approx(0.025, abs=0.004)


def test_what_seeds_share_costs_the_pooled_interval_and_not_the_one_within_seeds() -> None:
    looks = Looks(0.95, (5,))
    alone, shared = power(1.0, Spread(0.0, 0.5, 8), looks), power(1.0, Spread(0.8, 0.5, 8), looks)
    assert shared[1].shows == pytest.approx(alone[1].shows, abs=0.01)
    assert shared[0].shows < alone[0].shows - 0.2
    assert shared[0].falsely < 0.005


def test_the_declared_level_is_pococks_for_two_looks() -> None:
    covariance: Any = [[1, np.sqrt(5 / 10)], [np.sqrt(5 / 10), 1]]
    looks = stats.multivariate_normal(cov=covariance)

    def missed(c: float) -> float:
        return 1 - looks.cdf([c, c], lower_limit=[-c, -c]) - 0.05

    constant = optimize.brentq(missed, 1.9, 2.6)
    assert pytest.approx(2 * stats.norm.cdf(constant) - 1, abs=1e-4) == TWO_LOOKS.level
    _, by_seed = power(1.0, Spread(0.4, 0.5, 8), TWO_LOOKS, draws=50_000)
    assert by_seed.falsely == pytest.approx(0.025, abs=0.002)


def test_two_looks_are_those_of_the_intervals_that_claims_are_judged_by() -> None:
    spread, draws = Spread(0.4, 0.5, 4), 250
    rng = np.random.default_rng(1)
    shown, margins = np.zeros((2, draws), bool), np.full((2, draws), np.inf)
    for i in range(draws):
        values = 0.5 * rng.standard_normal((4, 10)) + 0.4 * rng.standard_normal(10)
        for seeds in TWO_LOOKS.seeds:
            cells = [dict(enumerate(row[:seeds].tolist())) for row in values]
            a, b = (list(cell.values()) for cell in cells[:2])
            pooled = difference(a, b, pooled_variance(list(c.values()) for c in cells), TWO_LOOKS.level)
            paired = paired_difference(cells[0], cells[1], TWO_LOOKS.level, residual_variance(cells))
            for kind, interval in enumerate((pooled, paired)):
                shown[kind, i] |= interval.bounds[0] + 0.7 > 0  # as if the first cell were .7 above
                margins[kind, i] = min(margins[kind, i], np.abs(interval.bounds).max())
    for kind, found in enumerate(power(0.7, spread, TWO_LOOKS)):
        assert shown[kind].mean() == pytest.approx(found.shows, abs=3.5 * np.sqrt(0.25 / draws))
        assert np.mean(margins[kind] < found.margin) == pytest.approx(0.8, abs=3.5 * np.sqrt(0.16 / draws))


def test_the_spread_comes_apart_into_seeds_and_rest() -> None:
    rng = np.random.default_rng(0)
    values = 45 + rng.normal(0, 0.3, (60, 1)) + rng.normal(0, 0.8, 400) + rng.normal(0, 0.5, (60, 400))
    found = estimate_spread([dict(enumerate(row.tolist())) for row in values[:, :40]])
    assert found is not None
    assert found.of_rest == pytest.approx(0.5, rel=0.05)
    assert found.of_seeds == pytest.approx(0.8, rel=0.25)
    assert estimate_spread([{1: 1.0}, {1: 2.0}]) is None


def test_the_command_tells_the_power_of_the_published_spread(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "T-reverse", "--scale", "mini", "--seeds", "5", "--results", str(CELLS), "--power", "1"]) == 0
    told = capsys.readouterr().out
    assert "spread of runs 0.65: seeds 0.42, the rest 0.49 (8 cells)" in told
    assert next(line for line in told.splitlines() if "5 and 10 seeds, 97.06 %" in line).count("%") == 5
    assert main(["paper", "F-entropy", "--results", str(CELLS), "--power", "1"]) == 2
    assert main(["paper", "T-reverse", "--results", str(CELLS), "--power", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 2
