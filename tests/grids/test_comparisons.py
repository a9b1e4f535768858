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


@pytest.mark.parametrize(("rule", "shown"), [("beats", "a < b"), ("far", "a << b"), ("at_least", "a <= b")])
def test_of_a_measure_that_should_be_low_the_smaller_value_is_the_better_one(rule: str, shown: str) -> None:
    low, high = (MeasuredCell({seed: level + seed / 100 for seed in range(1, 6)}) for level in (1.0, 3.0))
    strictness = Strictness(0.5, 0.95, 0.95)
    for cells, verdict in (({"a": low, "b": high}, HOLDS), ({"a": high, "b": low}, FAILS)):
        pool = [cell.values for cell in cells.values()]
        (found,) = RULES[rule](Comparison("x", "", cells, pool, strictness, less_is_better=True))
        assert (found.verdict, found.says) == (verdict, shown)
        assert found.interval is not None
        assert found.interval.effect == pytest.approx(-2.0 if verdict == HOLDS else 2.0)


def test_cells_that_collapsed_in_all_seeds_say_so_and_not_that_there_is_one_seed() -> None:
    cell = MeasuredCell({1: 10.0, 2: 10.1, 3: 9.9}, collapsed=frozenset({1, 2, 3}))
    (found,) = RULES["beats"](Comparison("x", "", {"a": cell, "b": cell}, [], Strictness(1.0, 0.95, 0.95)))
    assert (found.verdict, found.why) == (UNDECIDED, "all seeds collapsed: no variance to judge by")


@pytest.mark.parametrize(("names", "runs"), [("ab", 6), ("aa", 3)])
def test_a_rise_counts_every_run_behind_it_once(names: str, runs: int) -> None:
    rng = np.random.default_rng(0)
    cells = {
        place: MeasuredCell({seed: level + rng.normal() for seed in (1, 2, 3)}, run=run)
        for place, run, level in zip(("16", "64"), names, (0.0, 50.0), strict=True)
    }
    (found,) = RULES["rises"](Comparison("x", "", cells, [], Strictness(1.0, 0.95, 0.95)))
    assert found.runs == runs
