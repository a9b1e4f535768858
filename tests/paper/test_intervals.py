import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dualtemp.paper.intervals import difference, paired_difference, pooled_variance

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
