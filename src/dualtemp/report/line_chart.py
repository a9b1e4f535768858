"""A line chart as SVG: a logarithmic x axis, a line per series, error bars of one standard deviation."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from dualtemp.report.drawing import text_width

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 100, 14, 44
LINE = 14  # height of a line of text
BEFORE_NAME, SIZE = 24, 13  # from a line's end to its name, and the name's letters, a little wider than the page's
At = Callable[[float, float], tuple[float, float]]  # from plot coordinates to picture coordinates


@dataclass(frozen=True)
class Point:
    """A point: x > 0, y, the standard deviation of y if there is one, and a tooltip."""

    x: float
    y: float
    sd: float | None = None
    tooltip: str = ""


def line_chart(series: dict[str, list[Point]], x_title: str, y_title: str, ordered: bool = False) -> str:
    """Draw series by name; `ordered` series (such as temperatures) get shades of one color instead of many colors."""
    points = [point for line in series.values() for point in line]
    if not points:
        return ""
    xs = sorted({point.x for point in points})
    low = min(p.y - (p.sd or 0) for p in points)
    high = max(p.y + (p.sd or 0) for p in points)
    ticks = y_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    span = math.log(xs[-1] / xs[0]) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        right = LEFT + (WIDTH - LEFT - RIGHT) * (math.log(x / xs[0]) / span if len(xs) > 1 else 0.5)
        return round(right, 1), round(TOP + (HEIGHT - TOP - BOTTOM) * (high - y) / (high - low), 1)

    parts = [_axes(xs, ticks, at, x_title, y_title)]
    lines = {name: sorted(line, key=lambda p: p.x) for name, line in series.items() if line}
    highest_first = sorted(lines, key=lambda name: -lines[name][-1].y)
    labels = _apart({name: at(lines[name][-1].x, lines[name][-1].y)[1] + 4 for name in highest_first})
    for number, name in enumerate(series):
        if name in lines:
            color = f"ramp{number * 4 // max(1, len(series) - 1)}" if ordered else f"series{number % 5}"
            parts.append(_line(name, lines[name], at, color, labels[name]))
    title = escape(f"{y_title} against {x_title}")
    ends = [at(line[-1].x, 0.0)[0] + BEFORE_NAME + text_width(name, SIZE) for name, line in lines.items()]
    width = max(WIDTH, math.ceil(max(ends)))  # room for long names
    return f'<svg class="chart" viewBox="0 0 {width} {HEIGHT}" role="img" aria-label="{title}">{"".join(parts)}</svg>'


def y_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers from at most `low` to at least `high`."""
    if high <= low:
        low, high = low - abs(low) * 0.05 - 1e-9, high + abs(high) * 0.05 + 1e-9
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def tick_labels(ticks: list[float]) -> list[str]:
    """Format ticks with as many decimals as they need to differ, in scientific notation if that would be long."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(step / 10.0**-digits - round(step / 10.0**-digits)) > 1e-6:  # 2.5, 0.25
        digits += 1
    largest = max(map(abs, ticks))
    if digits > 5 or largest >= 1e6:
        significant = max(0, math.floor(math.log10(largest)) - math.floor(math.log10(step) + 1e-9))
        return [f"{tick:.{min(significant, 6)}e}" if tick else "0" for tick in ticks]
    return [f"{tick + 0.0:.{digits}f}" for tick in ticks]


def _axes(xs: list[float], ticks: list[float], at: At, x_title: str, y_title: str) -> str:
    rows = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{label}</text>'
        for tick, label in zip(ticks, tick_labels(ticks), strict=True)
        for _, y in [at(xs[0], tick)]
    ]
    bottom = HEIGHT - BOTTOM
    columns = [
        f'<text class="tick" x="{at(x, ticks[0])[0]}" y="{bottom + 18}" text-anchor="middle">{x:g}</text>' for x in xs
    ]
    middle, center = (LEFT + WIDTH - RIGHT) / 2, (TOP + bottom) / 2
    titles = (
        f'<text class="axis" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_title)}</text>'
        f'<text class="axis" transform="translate(13 {center}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_title)}</text>"
    )
    return "".join([*rows, *columns, titles])


def _line(name: str, line: list[Point], at: At, color: str, label: float) -> str:
    places = [at(p.x, p.y) for p in line]
    path = " ".join(f"{x},{y}" for x, y in places)
    bars = [
        f'<line class="bar" x1="{x}" x2="{x}" y1="{at(p.x, p.y - p.sd)[1]}" y2="{at(p.x, p.y + p.sd)[1]}"/>'
        for p, (x, _) in zip(line, places, strict=True)
        if p.sd
    ]
    dots = [
        f'<circle cx="{x}" cy="{y}" r="4"><title>{escape(p.tooltip)}</title></circle>'
        for p, (x, y) in zip(line, places, strict=True)
    ]
    right = places[-1][0] + BEFORE_NAME - 14
    end = (
        f'<rect class="key" x="{right}" y="{round(label - 9, 1)}" width="9" height="9" rx="2"/>'
        f'<text class="name" x="{right + 14}" y="{label}">{escape(name)}</text>'
    )
    return f'<g class="{color}"><polyline points="{path}"/>{"".join(bars)}{"".join(dots)}{end}</g>'


def _apart(heights: dict[str, float]) -> dict[str, float]:
    """Spread label heights at least a line of text apart, in the same order: downward, or all up at the bottom."""
    placed: dict[str, float] = {}
    for name, y in heights.items():
        placed[name] = max([y, *(other + LINE for other in placed.values())])
    over = max(0.0, max(placed.values()) - (HEIGHT - BOTTOM + 10))
    return {name: round(y - over, 1) for name, y in placed.items()}
