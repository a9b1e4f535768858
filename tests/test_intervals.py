import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LinearRegression

from dualtemp.intervals import difference, paired_difference, pooled_variance, residual_variance

values = st.lists(st.floats(0, 100), min_size=2, max_size=6).filter(lambda v: np.ptp(v) > 1e-3)


@given(values, values)
def test_with_two_cells_the_interval_is_that_of_the_two_sample_t_test(a: list[float], b: list[float]) -> None:
    found = difference(a, b, pooled_variance([a, b]), 0.95)
    expected = stats.ttest_ind(a, b, equal_var=True).confidence_interval(0.95)
    assert found.effect == pytest.approx(np.mean(a) - np.mean(b), abs=1e-9)
    assert found.bounds == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)


@given(values)
def test_paired_intervals_are_those_of_the_paired_t_test(a: list[float]) -> None:
    b = [x * 0.5 + i for i, x in enumerate(a)]
    found = paired_difference(dict(enumerate(a)), dict(enumerate(b)), 0.95)
    if found.low is not None:
        expected = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert found.bounds == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-6)


def test_cells_of_the_whole_table_share_one_variance() -> None:
    rng = np.random.default_rng(0)
    cells = [list(rng.normal(50, 2, size=n)) for n in (3, 3, 5, 1)]
    pooled = pooled_variance(cells)
    many = [c for c in cells if len(c) > 1]
    by_hand = sum(np.sum((np.array(c) - np.mean(c)) ** 2) for c in many) / sum(len(c) - 1 for c in many)
    assert (pooled.variance, pooled.df) == (pytest.approx(by_hand), 8)
    found = difference(cells[3], cells[0], pooled, 0.95)  # a cell of one seed, with its table's variance
    half = stats.t.ppf(0.975, 8) * math.sqrt(by_hand * (1 + 1 / 3))
    assert found.bounds == pytest.approx((found.effect - half, found.effect + half))


def test_where_there_is_no_interval_the_reason_is_said() -> None:
    one_seed = difference([1.0], [2.0], pooled_variance([[1.0], [2.0]]), 0.95)
    assert (one_seed.effect, one_seed.low, one_seed.why) == (-1.0, None, "one seed: no interval")
    equal = difference([1.0, 1.0], [2.0, 2.0], pooled_variance([[1.0, 1.0], [2.0, 2.0]]), 0.95)
    assert (equal.low, equal.why) == (None, "the seeds do not differ at all: no interval")
    assert paired_difference({1: 1.0}, {2: 1.0}, 0.95).why == "no seed in common"
    assert paired_difference({1: 1.0}, {1: 1.0}, 0.95).why == "one seed: no interval"


@given(st.integers(2, 5), st.integers(2, 6), st.integers(0, 1000))
def test_beside_seeds_a_full_table_leaves_the_residuals_of_both_means(cells: int, seeds: int, draw: int) -> None:
    y = np.random.default_rng(draw).normal(50, 3, size=(cells, seeds))
    left = residual_variance([dict(enumerate(row)) for row in y])
    residuals = y - y.mean(1, keepdims=True) - y.mean(0, keepdims=True) + y.mean()
    assert left.df == (cells - 1) * (seeds - 1)
    assert left.variance == pytest.approx(np.sum(residuals**2) / left.df, rel=1e-9)


@given(values)
def test_beside_seeds_two_cells_give_the_paired_t_test(a: list[float]) -> None:
    b = [x * 0.5 + i * i for i, x in enumerate(a)]
    first, second = dict(enumerate(a)), dict(enumerate(b))
    found = paired_difference(first, second, 0.95, residual_variance([first, second]))
    alone = paired_difference(first, second, 0.95)
    if alone.low is not None:
        assert found.bounds == pytest.approx(alone.bounds, rel=1e-6, abs=1e-6)


def test_beside_seeds_cells_may_have_different_seeds() -> None:
    table = [{1: 50.0, 2: 51.5, 3: 53.0}, {1: 48.0, 2: 50.0}, {3: 49.0}, {}]
    left = residual_variance(table)
    rows = [(c, seed, y) for c, cell in enumerate(table) for seed, y in cell.items()]
    design = [[c == 0, c == 1, c == 2, seed == 1, seed == 2] for c, seed, _ in rows]  # seed 3 is the base
    fit = LinearRegression(fit_intercept=False).fit(design, [y for *_, y in rows])
    squares = np.sum((fit.predict(design) - [y for *_, y in rows]) ** 2)
    assert left.df == 1
    assert left.variance == pytest.approx(squares)
    assert paired_difference(table[0], table[1], 0.95, left).effect == pytest.approx(1.75)
    assert paired_difference(table[1], table[2], 0.95, left).why == "no seed in common"
    assert residual_variance([{}, {}]).df == 0
