"""A small chart over epochs as SVG: one line per measure or run, reference lines, values under the pointer."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from dualtemp.report.line_chart import tick_labels, y_ticks
from dualtemp.runs.measure import Reference

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 20, 36  # the top margin fits the name of a level at the top
LETTER = 6.0  # width of a letter in a level's name
COLORS, DASHES = 8, 3  # lines differ by color first, then by dashes
MANY = 300  # lines with more points are thinned: about one point per pixel
DOTS = 40  # lines with at most so many points mark each of them
FLAT = 1e-3  # a range below this share of the values is drawn as flat, so that rounding noise is not magnified


@dataclass(frozen=True)
class Line:
    """A line. points: (epoch, value), sorted by epoch; number: decides color and dashes; form: format of a value."""

    name: str
    points: Sequence[tuple[int, float]]
    number: int = 0
    form: str = "{:.4g}"


def epoch_chart(title: str, lines: Sequence[Line], references: Sequence[Reference] = ()) -> str:
    """Draw lines over epochs on the same axes; return "" if there is nothing to draw."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    values = [value for line in lines for _, value in line.points] + [reference.value for reference in references]
    low, high = _widened(min(values), max(values))
    ticks = y_ticks(low, high, 4)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    epochs = [epoch for line in lines for epoch, _ in line.points]
    first, last = min(epochs), max(epochs)

    def across(epoch: float) -> float:
        share = (epoch - first) / (last - first) if last > first else 0.5
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def down(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

    labels = zip(ticks, tick_labels(ticks), strict=True)
    rows = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{down(tick)}" y2="{down(tick)}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{down(tick) + 4}" text-anchor="end">{label}</text>'
        for tick, label in labels
    ]
    columns = [
        f'<text class="tick" x="{across(epoch)}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{epoch}</text>'
        for epoch in epoch_ticks(first, last)
    ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    columns.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">epoch</text>')
    seen = [_along([(across(epoch), down(value)) for epoch, value in thin(line.points)]) for line in lines]
    levels = [
        _level(reference, down(reference.value), [at for line in seen for at in line]) for reference in references
    ]
    drawn, readouts, told = [], [], told_epochs(lines)
    for line in lines:
        kept = thin(line.points)
        drawn.append(_drawn(line, kept, [(across(epoch), down(value)) for epoch, value in kept]))
        readouts.append(
            {
                "name": line.name,
                "number": line.number % COLORS,
                "line": line.number,
                "points": [
                    [across(epoch), down(value), epoch, line.form.format(value)]
                    for epoch, value in line.points
                    if epoch in told
                ],
            }
        )
    return (
        f'<svg class="epochs" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" '
        f'aria-label="{escape(_spoken(title, lines))}" data-lines="{escape(json.dumps(readouts), quote=True)}">'
        f"{''.join([*rows, *columns, *levels, *drawn])}"
        f'<g class="cross" visibility="hidden"><line y1="{TOP}" y2="{HEIGHT - BOTTOM}"/></g></svg>'
    )


def varies(lines: Sequence[Line]) -> bool:
    """Whether the values of these lines differ by more than rounding noise, so that a chart shows something."""
    values = [value for line in lines for _, value in line.points]
    return bool(values) and max(values) - min(values) > FLAT * max(map(abs, values))


def epoch_ticks(first: int, last: int, count: int = 5) -> list[int]:
    """Choose at least two round epochs in even steps to label the axis with."""
    if last == first:
        return [first]
    step = max(1, round(y_ticks(0, last - first, count)[1]))
    return list(range(-(-first // step) * step, last + 1, step))


def thin(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Reduce a line to about MANY points: its ends, and the lowest and highest of every stretch, to keep spikes."""
    if len(points) <= MANY:
        return list(points)
    stretch = math.ceil(2 * len(points) / MANY)
    kept = {points[0], points[-1]}
    for start in range(0, len(points), stretch):
        some = points[start : start + stretch]
        kept |= {min(some, key=lambda point: point[1]), max(some, key=lambda point: point[1])}
    return sorted(kept)


def told_epochs(lines: Sequence[Line]) -> set[int]:
    """Choose about MANY epochs to read values off, the same for all lines, and the ends and extremes of each line."""
    there = Counter(epoch for line in lines for epoch, _ in line.points)
    epochs = sorted(there)
    stretch = math.ceil(len(epochs) / MANY)
    told = {max(epochs[start : start + stretch], key=there.__getitem__) for start in range(0, len(epochs), stretch)}
    for line in lines:
        by_value = sorted(line.points, key=lambda point: point[1])
        told |= {epoch for each in (line.points, by_value) for epoch, _ in (each[0], each[-1])}
    return told


def line_class(number: int) -> str:
    """Return the CSS classes of a line: color, and dashes from the ninth line on."""
    return f"run{number % COLORS} dash{number // COLORS % DASHES}"


def _widened(low: float, high: float) -> tuple[float, float]:
    least = FLAT * max(abs(low), abs(high)) or 1.0
    if high - low >= least:
        return low, high
    middle = (low + high) / 2
    return middle - least / 2, middle + least / 2


def _along(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return points every few pixels along a line."""
    found = list(places[:1])
    for (x, y), (to_x, to_y) in pairwise(places):
        count = math.ceil(max(abs(to_x - x), abs(to_y - y)) / 3) or 1
        found += [(x + (to_x - x) * i / count, y + (to_y - y) * i / count) for i in range(1, count + 1)]
    return found


def _level(reference: Reference, y: float, seen: Sequence[tuple[float, float]]) -> str:
    """Draw a dashed line with its name above or below it, right or left: where it covers the fewest points."""
    width = LETTER * len(reference.name)

    def in_the_way(place: tuple[float, float]) -> int:
        left, baseline = place
        return sum(left - 4 <= x <= left + width + 4 and baseline - 11 <= down <= baseline + 4 for x, down in seen)

    heights = [y - 6] + ([y + 15] if y + 17 < HEIGHT - BOTTOM else [])
    places = [(left, height) for left in (WIDTH - RIGHT - width, LEFT + 4) for height in heights]
    left, baseline = min(places, key=in_the_way)
    at_left = left == LEFT + 4
    x, anchor = (LEFT + 4, "start") if at_left else (WIDTH - RIGHT, "end")
    return (
        f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        f'<text class="level" x="{x}" y="{round(baseline, 1)}" text-anchor="{anchor}">{escape(reference.name)}</text>'
    )


def _drawn(line: Line, kept: Sequence[tuple[int, float]], places: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{x},{y}" for x, y in places)
    dots = [
        f'<circle cx="{x}" cy="{y}" r="3"><title>{escape(f"{line.name}, epoch {epoch}: {line.form.format(value)}")}'
        f"</title></circle>"
        for (epoch, value), (x, y) in zip(kept, places, strict=True)
    ]
    shown = "".join(dots if len(dots) <= DOTS else [])
    return f'<g class="{line_class(line.number)}" data-run="{line.number}"><polyline points="{path}"/>{shown}</g>'


def _spoken(title: str, lines: Sequence[Line]) -> str:
    parts = [
        f"{line.name} {line.form.format(line.points[0][1])} at epoch {line.points[0][0]}, "
        f"{line.form.format(line.points[-1][1])} at epoch {line.points[-1][0]}"
        for line in lines
    ]
    return f"{title} over epochs: {'; '.join(parts)}"
