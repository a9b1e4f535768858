import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dualtemp.grids.artifact import Artifact
from dualtemp.grids.comparisons import RULES, UNDECIDED, Comparison, MeasuredCell, Strictness
from dualtemp.grids.contrasts import Contrast, adjust, contrast_cells, paired_p
from dualtemp.intervals import Interval, mean_interval

VALUES = st.lists(st.integers(0, 10_000).map(lambda n: n / 100), min_size=2, max_size=8)


@given(VALUES, st.integers(0, 2**32 - 1))
def test_the_paired_test_is_scipys(values: list[float], seed: int) -> None:
    other = np.random.default_rng(seed).normal(50, 5, len(values)).tolist()
    a, b = dict(enumerate(values)), dict(enumerate(other))
    expected = stats.ttest_rel(values, other)
    assert paired_p(a, b) == pytest.approx(float(expected.pvalue), rel=1e-7, abs=1e-12)


@given(VALUES)
def test_the_interval_of_a_mean_is_scipys(values: list[float]) -> None:
    found = mean_interval(values, 0.9)
    assert found.effect == pytest.approx(np.mean(values))
    if len(set(values)) == 1:
        assert found.low is None
        return
    expected = stats.t.interval(0.9, len(values) - 1, np.mean(values), stats.sem(values))
    assert found.bounds == pytest.approx(expected, rel=1e-7, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_all_together_are_adjusted_as_holm_did(ps: list[float]) -> None:
    adjusted = adjust([Contrast("", "a", "b", 3, Interval(0.0), p) for p in ps])
    for level in (0.01, 0.05, 0.3):
        # Holm's own words: in ascending order, reject while p <= level / (number left).
        rejected = set()
        for rank, number in enumerate(np.argsort(ps, kind="stable").tolist()):
            if ps[number] * (len(ps) - rank) > level:
                break
            rejected.add(number)
        assert {number for number, c in enumerate(adjusted) if (c.p_of_all or 0.0) <= level} == rejected


def test_rows_are_contrasted_with_the_first_row_and_columns_with_the_first_column() -> None:
    artifact = Artifact("x", 0, "", "", rows={"A": {}, "B": {}}, columns={"1": {}, "2": {}, "3": {}})
    rng = np.random.default_rng(0)
    table = {
        (r, c): MeasuredCell(dict(enumerate(rng.normal(10 * (r == "B") + int(c), 0.1, 5).tolist())), run=f"{r}{c}")
        for r in "AB"
        for c in "123"
    }
    table["B", "3"] = MeasuredCell(failed={1: "no room"}, run="B3")
    found = {(c.where, c.first, c.second): c for c in contrast_cells(artifact, table, 0.95)}
    assert set(found) == {
        ("1", "B", "A"),
        ("2", "B", "A"),
        ("A", "2", "1"),
        ("A", "3", "1"),
        ("B", "2", "1"),
    }
    assert found["1", "B", "A"].interval.effect == pytest.approx(10, abs=0.3)
    assert all(c.is_clear(0.95) for c in found.values())


def test_one_seed_shows_a_difference_and_decides_nothing() -> None:
    artifact = Artifact("x", 0, "", "", rows={"A": {}, "B": {}}, columns={"": {}})
    table = {("A", ""): MeasuredCell({1: 5.0}, run="a"), ("B", ""): MeasuredCell({1: 7.0, 2: 8.0}, run="b")}
    (found,) = contrast_cells(artifact, table, 0.95)
    assert (found.interval.effect, found.p, found.seeds, found.is_clear(0.95)) == (2.0, None, 1, False)


def test_a_gain_of_the_same_images_in_every_seed_has_no_p_whatever_rounding_says() -> None:
    a, b = ({seed: 100 * (120 + 7 * seed + more) / 360 for seed in range(1, 6)} for more in (5, 0))
    assert len({a[seed] - b[seed] for seed in a}) > 1  # though each is five images of 360
    artifact = Artifact("x", 0, "", "", rows={"B": {}, "A": {}}, columns={"": {}})
    (found,) = contrast_cells(
        artifact, {("A", ""): MeasuredCell(a, run="a"), ("B", ""): MeasuredCell(b, run="b")}, 0.95
    )
    assert found.interval.effect == pytest.approx(100 * 5 / 360)
    assert (found.interval.low, found.p, found.is_clear(0.95)) == (None, None, False)


@pytest.mark.parametrize(("first", "last"), [((200, 201), (202, 203)), ((202, 203), (200, 201))])
def test_a_row_neither_rises_nor_falls_by_what_rounding_has_left(first: tuple[int, int], last: tuple[int, int]) -> None:
    small, large = ({seed: 100 * right / 360 for seed, right in enumerate(part)} for part in (first, last))
    assert len({large[seed] - small[seed] for seed in small}) == 2  # though each is two images of 360
    cells = {"small": MeasuredCell(small), "large": MeasuredCell(large)}
    (found,) = RULES["rises"](Comparison("x", "", cells, [small, large], Strictness(1.0, 0.95, 0.975)))
    assert (found.verdict, found.why) == (UNDECIDED, "the seeds do not differ at all: no interval")
