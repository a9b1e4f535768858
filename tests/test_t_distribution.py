import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dualtemp.t_distribution import incomplete_beta, t_quantile


@given(st.floats(0.001, 0.999), st.integers(1, 500))
def test_quantiles_are_those_of_scipy(p: float, df: int) -> None:
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9, abs=1e-9)


@given(st.floats(0.3, 200), st.floats(0.3, 200), st.floats(0, 1))
def test_the_incomplete_beta_function_is_that_of_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-13)
