"""Verdicts of single comparisons: each side of an interval, failed seeds, steps of a curve that rises."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from dualtemp.grids.comparisons import (
    FAILS,
    HOLDS,
    RULES,
    UNDECIDED,
    Comparison,
    MeasuredCell,
    Strictness,
    above,
    below,
    within,
)
from dualtemp.intervals import Interval, bonferroni


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (within(1.0), -0.5, 0.5, HOLDS),
        (within(1.0), -1.5, 0.5, UNDECIDED),
        (within(1.0), 0.5, 1.5, UNDECIDED),
        (within(1.0), -1.5, 1.5, UNDECIDED),
        (within(1.0), 1.1, 2.0, FAILS),
        (within(1.0), -2.0, -1.1, FAILS),
        (above(1.0), 1.1, 2.0, HOLDS),
        (above(1.0), 0.5, 1.5, UNDECIDED),
        (above(1.0), -2.0, 0.9, FAILS),
        (below(1.0), -2.0, 0.9, HOLDS),
        (below(1.0), 0.5, 1.5, UNDECIDED),
        (below(1.0), 1.1, 2.0, FAILS),
    ],
)
def test_each_side_of_an_interval_has_its_verdict(
    rule: Callable[[Interval], str], low: float, high: float, verdict: str
) -> None:
    assert rule(Interval((low + high) / 2, low, high, 3)) == verdict


def test_a_seed_that_failed_is_a_seed_that_was_run() -> None:
    some = MeasuredCell({1: 50.0, 2: 51.0, 3: 50.5, 4: 51.5}, failed={5: "out of memory"})
    others = MeasuredCell({seed: 40 + seed / 10 for seed in range(1, 6)})
    strictness = Strictness(1.0, 0.95, 0.95, needed=5)
    comparison = Comparison("x", "", {"a": some, "b": others}, [some.values, others.values], strictness)
    (found,) = RULES["beats"](comparison)
    assert (found.verdict, found.reached) == (HOLDS, True)


def test_a_look_sees_neither_failures_nor_collapses_of_later_seeds() -> None:
    cell = MeasuredCell({1: 1.0, 2: 2.0, 4: 4.0}, failed={3: "x", 5: "y"}, collapsed=frozenset({4}))
    early = cell.up_to(2)
    assert (early.values, early.failed, early.collapsed) == ({1: 1.0, 2: 2.0}, {}, frozenset())


def test_a_fall_that_is_clear_only_by_its_own_interval_does_not_refute_a_rise() -> None:
    between = (stats.t.ppf(0.975, 4) + stats.t.ppf(1 - 0.05 / 6, 4)) / 2
    fall = np.array([-1.0, -0.8, -1.2, -0.9, -1.1])
    fall = (fall - fall.mean()) / fall.std(ddof=1) - between / 5**0.5
    rng = np.random.default_rng(0)
    base = 10 + rng.normal(0, 0.1, 5)
    values = {"64": base, "256": base + fall, "1024": base + 50 + rng.normal(0, 0.1, 5)}
    cells = {name: MeasuredCell(dict(enumerate(each.tolist()))) for name, each in values.items()}
    (found,) = RULES["rises"](Comparison("x", "", cells, [], Strictness(1.0, 0.95, bonferroni(0.95, 3))))
    assert found.verdict == HOLDS
