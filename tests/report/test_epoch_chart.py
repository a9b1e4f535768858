import json
import math
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.report.epoch_chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MANY,
    RIGHT,
    TOP,
    WIDTH,
    Line,
    Reference,
    epoch_chart,
    epoch_ticks,
    thin,
)
from dualtemp.report.line_chart import tick_labels, y_ticks

numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 9))


@given(st.lists(numbers, min_size=1, max_size=60), numbers)
def test_all_lines_lie_within_the_axes_in_the_order_of_epochs(values: list[float], level: float) -> None:
    lines = [Line("a <b>", list(enumerate(values, 3))), Line("short", [(3, values[0])], 1), Line("empty", [], 2)]
    drawn = ElementTree.fromstring(epoch_chart("loss & more", lines, [Reference("chance", level)]))
    shown = json.loads(drawn.get("data-lines", ""))
    assert [line["name"] for line in shown] == ["a <b>", "short"]
    assert [point[2] for point in shown[0]["points"]] == list(range(3, 3 + len(values)))
    for line in shown:
        for x, y, _, _ in line["points"]:
            assert LEFT <= x <= WIDTH - RIGHT
            assert TOP <= y <= HEIGHT - BOTTOM
    assert TOP <= float(next(e for e in drawn.iter("line") if e.get("class") == "level").get("y1", "")) <= HEIGHT


def test_heights_and_epochs_are_to_scale() -> None:
    drawn = ElementTree.fromstring(epoch_chart("x", [Line("a", [(1, 0.0), (3, 1.0), (9, 4.0)])]))
    (one, two, three) = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in drawn.iter("circle")]
    assert one[1] > two[1] > three[1]  # higher is higher
    assert (three[0] - two[0]) / (two[0] - one[0]) == pytest.approx(3, abs=0.01)
    assert (two[1] - three[1]) / (one[1] - two[1]) == pytest.approx(3, abs=0.05)


def test_values_are_told_for_the_pointer_in_their_form() -> None:
    text = epoch_chart("probe", [Line("probe", [(1, 43.214)], form="{:.2f} %")])
    assert "probe, epoch 1: 43.21 %" in text


def test_rounding_noise_is_drawn_flat() -> None:
    drawn = ElementTree.fromstring(epoch_chart("H", [Line("H", [(1, 4.158880), (2, 4.158883)])]))
    ys = [float(circle.get("cy", "")) for circle in drawn.iter("circle")]
    assert abs(ys[0] - ys[1]) < 1


@given(st.integers(0, 2**32), st.integers(MANY + 1, 5 * MANY))
def test_a_thinned_line_keeps_ends_and_extremes(seed: int, count: int) -> None:
    values = np.random.default_rng(seed).normal(size=count).tolist()
    points = list(enumerate(values))
    kept = thin(points)
    assert len(kept) <= MANY + 4
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {max(values), min(values)} <= {value for _, value in kept}
    assert set(kept) <= set(points)


@pytest.mark.parametrize(("seed", "count"), [(0, 2), (1, 24)])
def test_of_many_epochs_the_values_of_all_lines_are_told_at_the_same_ones(seed: int, count: int) -> None:
    values = np.random.default_rng(seed).normal(size=(count, 4 * MANY))
    lines = [Line(f"run {i}", list(enumerate(row.tolist(), 1)), i, "{!r}") for i, row in enumerate(values)]
    seldom = Line("evaluated every tenth epoch", lines[0].points[9::10], count, "{!r}")
    drawn = ElementTree.fromstring(epoch_chart("x", [*lines, seldom]))
    told = [{point[2]: float(point[3]) for point in line["points"]} for line in json.loads(drawn.get("data-lines", ""))]
    assert all(line.keys() == told[0].keys() for line in told[:count])
    assert len(told[0]) <= MANY + 4 * (count + 1)
    assert told[count] == dict(seldom.points)
    for row, line in zip(values, told, strict=False):
        assert {1, 4 * MANY, int(row.argmin()) + 1, int(row.argmax()) + 1} <= line.keys()
        assert all(row[epoch - 1] == value for epoch, value in line.items())


@given(st.integers(1, 500), st.integers(0, 3000))
def test_epochs_below_the_axis_are_whole_few_and_in_even_steps(first: int, span: int) -> None:
    ticks = epoch_ticks(first, first + span)
    assert first <= ticks[0] <= ticks[-1] <= first + span
    assert len({after - before for before, after in pairwise(ticks)}) <= 1
    assert min(2, span + 1) <= len(ticks) <= 9
    assert epoch_ticks(1, 8) == [2, 4, 6, 8]


@given(numbers, st.floats(1e-9, 1e6))
def test_labels_tell_ticks_apart_and_are_short(low: float, span: float) -> None:
    ticks = y_ticks(low, low + max(span, 1e-4 * abs(low)))
    labels = tick_labels(ticks)
    assert len(set(labels)) == len(labels)
    step = ticks[1] - ticks[0]
    assert all(math.isclose(float(label), tick, abs_tol=0.06 * step) for label, tick in zip(labels, ticks, strict=True))
    assert max(map(len, labels)) <= 14


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ([3.4, 3.45, 3.4655], math.log(32)),  # from below up to a level that is the highest
        ([20.0, 15.0, 10.2], 10.0),  # from above down to one that is the lowest
        ([1.0, 2.0, 3.0], 2.0),
        ([3.46573] * 3, math.log(32)),
    ],
)
def test_the_name_of_a_level_lies_on_no_line(values: list[float], level: float) -> None:
    name = "log 32: all weigh the same"
    drawn = ElementTree.fromstring(epoch_chart("H", [Line("H", list(enumerate(values, 1)))], [Reference(name, level)]))
    label = next(text for text in drawn.iter("text") if text.get("class") == "level")
    x, baseline = float(label.get("x", "")), float(label.get("y", ""))
    left, right = (x, x + 140) if label.get("text-anchor") == "start" else (x - 140, x)
    assert 9 <= baseline <= HEIGHT - BOTTOM
    places = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in drawn.iter("circle")]
    xs = np.linspace(left, right, 200)
    ys = np.interp(xs, [x for x, _ in places], [y for _, y in places])
    inside = (ys > baseline - 9) & (ys < baseline + 3)
    assert not inside.any()


def test_nothing_to_draw_is_no_picture() -> None:
    assert epoch_chart("x", [Line("a", [])]) == ""
