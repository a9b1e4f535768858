import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.paper.frameworks_diagram import BOXES, frameworks_diagram
from dualtemp.report.line_chart import HEIGHT, WIDTH, Point, line_chart, y_ticks

heights = st.floats(-1e4, 1e4).map(lambda y: round(y, 6))


@given(st.lists(st.tuples(st.integers(1, 70_000), heights, st.floats(0, 10)), min_size=1, max_size=8), st.booleans())
def test_every_point_is_drawn_within_the_picture(points: list[tuple[int, float, float]], ordered: bool) -> None:
    lines = {"a <b>": [Point(x, y, sd, f"{y}") for x, y, sd in points], "empty": []}
    drawn = ElementTree.fromstring(line_chart(lines, "keys", "top-1 & more", ordered))
    circles = list(drawn.iter("circle"))
    assert len(circles) == len(points)
    for circle in circles:
        assert 0 <= float(circle.get("cx", "")) <= WIDTH
        assert 0 <= float(circle.get("cy", "")) <= HEIGHT
    assert [t.text for t in drawn.iter("text") if t.get("class") == "name"] == ["a <b>"]


def test_sizes_lie_on_a_logarithmic_axis_and_higher_is_higher() -> None:
    drawn = ElementTree.fromstring(line_chart({"a": [Point(10, 1.0), Point(100, 2.0), Point(1000, 3.0)]}, "x", "y"))
    xs, ys = ([float(c.get(name, "")) for c in drawn.iter("circle")] for name in ("cx", "cy"))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)
    assert ys[0] > ys[1] > ys[2]


@given(heights, st.floats(1e-4, 1e4))
def test_ticks_are_few_and_enclose_the_values(low: float, span: float) -> None:
    ticks = y_ticks(low, low + span)
    assert 2 <= len(ticks) <= 8
    assert ticks[0] <= low + 1e-6 * span
    assert ticks[-1] >= low + span - 1e-6 * span
    steps = [b - a for a, b in pairwise(ticks)]
    assert all(math.isclose(step, steps[0], rel_tol=1e-6) for step in steps)


def test_a_long_name_gets_room_and_a_short_one_moves_nothing() -> None:
    line = [Point(1, 1.0), Point(2, 2.0)]
    widths, ends = [], []
    for name in ("MoCo v2+", "a wider projector, and two temperatures"):
        drawn = ElementTree.fromstring(line_chart({name: line}, "x", "y"))
        widths.append(float(drawn.get("viewBox", "").split()[2]))
        ends += [float(t.get("x", "")) for t in drawn.iter("text") if t.get("class") == "name"]
    assert widths[0] == WIDTH
    assert ends[0] == ends[1]
    assert widths[1] > ends[1] + 200  # 39 letters of 12 pixels, about half as wide as high


def test_nothing_to_draw_is_no_picture() -> None:
    assert line_chart({"a": []}, "x", "y") == ""


def test_the_diagram_names_every_framework() -> None:
    drawn = ElementTree.fromstring(frameworks_diagram())
    names = {text.text for text in drawn.iter("text")}
    assert set(BOXES) <= names
    assert len(list(drawn.iter("line"))) == 5


@given(st.lists(heights, min_size=1, max_size=8, unique=True))
def test_names_stand_apart_in_the_order_of_the_lines(ends: list[float]) -> None:
    drawn = ElementTree.fromstring(line_chart({str(y): [Point(1, 0.0), Point(2, y)] for y in ends}, "x", "y"))
    names = {t.text: float(t.get("y", "")) for t in drawn.iter("text") if t.get("class") == "name"}
    found = [names[str(y)] for y in sorted(ends, reverse=True)]
    assert all(low - high >= 13.9 for high, low in pairwise(found))
