"""The figure of a grid: every seed as a dot, with mean and interval beside. Needs no torch."""

from collections.abc import Callable, Iterable

from dualtemp.grids.artifact import Artifact
from dualtemp.grids.comparisons import MeasuredCell, Table
from dualtemp.intervals import Interval, mean_interval
from dualtemp.report.drawing import Dot, Line, Shape, Text, text_width
from dualtemp.report.line_chart import tick_labels, y_ticks

BRIGHT = ("#2a78d6", "#eb6834", "#1baf7a", "#b07900", "#c94f82", "#6b5bd2", "#555555")


def _mixed(color: str, share: float, gray: int) -> str:
    """Mix a color with a gray (0 black, 255 white); share: of the color."""
    parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{int(share * part + (1 - share) * gray):02x}" for part in parts)


COLORS = (*BRIGHT, *(_mixed(color, 1 / 2, 0) for color in BRIGHT))
PALE = {color: _mixed(color, 1 / 3, 255) for color in COLORS}
PLOT, TOP, BOTTOM, LEFT, RIGHT = 246.0, 14.0, 44.0, 58.0, 14.0
PAGE = 1040.0  # width that fits on a page; wider figures scroll
STEP, LEAST_STEP = 22.0, 13.0  # distance between cells of a group
LETTERS, LEGEND_LINE, GAP = 11.0, 16.0, 18.0  # font size of names; the legend's line height, and gap between its names
SLACK = 1.15  # the font of a browser without Helvetica may be wider by this factor
GRID = "#dddddd"


def draw_grid(artifact: Artifact, table: Table, y_title: str, confidence: float) -> tuple[list[Shape], float, float]:
    """Return the shapes, width and height: one group per column, one color per row. No shapes without values."""
    values = [value for cell in table.values() for value in cell.values.values()]
    if not values:
        return [], 0.0, 0.0
    bounds = [i.bounds for c in table.values() if c.values and (i := _interval(c, confidence)).low is not None]
    ticks = y_ticks(min([*values, *(low for low, _ in bounds)]), max([*values, *(high for _, high in bounds)]))
    places = len(artifact.rows) + 1
    step = min(STEP, max(LEAST_STEP, (PAGE - LEFT - RIGHT) / len(artifact.columns) / places))
    group = max(step * places, *(_name_width(name) + 12 for name in artifact.columns))
    named = [12 + _name_width(name) for name in artifact.rows]
    wide = LEFT + RIGHT + max(group * len(artifact.columns), *named, 248.0)
    group = (wide - LEFT - RIGHT) / len(artifact.columns)
    legend, top = _legend(artifact.rows, wide - RIGHT)
    bottom = top + PLOT

    def at(value: float) -> float:
        return top + PLOT * (ticks[-1] - value) / (ticks[-1] - ticks[0])

    shapes = legend
    for tick, label in zip(ticks, tick_labels(ticks), strict=True):
        shapes.append(Line(LEFT, at(tick), wide - RIGHT, at(tick), GRID))
        shapes.append(Text(LEFT - 8, at(tick) + 4, label, "end"))
    shapes.append(Text(14, (top + bottom) / 2, y_title, "middle", upward=True))
    for place, column in enumerate(artifact.columns):
        middle = LEFT + group * (place + 0.5)
        shapes.append(Text(middle, bottom + 18, column, "middle"))
        for number, row in enumerate(artifact.rows):
            x = middle + step * (number - (len(artifact.rows) - 1) / 2)
            shapes += _cell(table[row, column], x, COLORS[number % len(COLORS)], at, confidence)
    if artifact.column_title:
        shapes.append(Text((LEFT + wide - RIGHT) / 2, bottom + BOTTOM - 8, artifact.column_title, "middle"))
    return shapes, wide, bottom + BOTTOM


def _cell(cell: MeasuredCell, x: float, color: str, at: Callable[[float], float], confidence: float) -> list[Shape]:
    if not cell.values:
        return []
    shapes: list[Shape] = [Dot(x - 4, at(value), 2.2, PALE[color]) for value in cell.values.values()]
    interval = _interval(cell, confidence)
    if interval.low is not None:
        low, high = interval.bounds
        shapes.append(Line(x + 3, at(low), x + 3, at(high), color, 1.6))
    return [*shapes, Dot(x + 3, at(interval.effect), 3.6, color)]


def _interval(cell: MeasuredCell, confidence: float) -> Interval:
    return mean_interval(list(cell.values.values()), confidence)


def _legend(rows: Iterable[str], right: float) -> tuple[list[Shape], float]:
    """Return the legend (names of rows with their colors, on as many lines as needed), and where the plot begins."""
    shapes: list[Shape] = []
    x, y = LEFT, TOP
    for number, name in enumerate(rows):
        if not name:
            continue
        if x > LEFT and x + 12 + _name_width(name) > right:
            x, y = LEFT, y + LEGEND_LINE
        shapes += [Dot(x + 4, y - 2, 4, COLORS[number % len(COLORS)]), Text(x + 12, y + 2, name, size=LETTERS)]
        x += 12 + _name_width(name) + GAP
    return shapes, y + LEGEND_LINE


def _name_width(name: str) -> float:
    return SLACK * text_width(name, LETTERS)
