"""An analysis as a figure: one self-contained SVG file, for light and dark."""

from typing import Any

from dualtemp.report.line_chart import HEIGHT, WIDTH, Point, line_chart
from dualtemp.report.page import render

TITLES = {
    "entropy": ("keys", "entropy of r_+ (nats)"),
    "similarity": ("keys of each draw", "cosine of two draws of r_+"),
    "dictionary": ("newest keys", "cosine with all keys"),
    "neighbours": ("nearest neighbors", "share with the same label"),
}
COMPONENTS = {"scalar_similarity": "r_+", "vector_similarity": "vector"}


def analysis_figure(found: dict[str, Any]) -> str:
    """Draw a line per temperature over the number of keys; for neighbors, agreement and chance over k."""
    what = found["analysis"]
    drawn = {"dictionary": _components, "neighbours": _agreement}.get(what, _curves)(found)
    chart = line_chart(drawn, *TITLES[what], ordered=what in ("entropy", "similarity"))
    if not chart:
        chart = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}"><text x="24" y="40">Nothing to draw.</text></svg>'
    return render("analysis.svg.j2", {"chart": chart, "width": WIDTH, "height": HEIGHT})


def _curves(found: dict[str, Any]) -> dict[str, list[Point]]:
    return {
        f"tau {tau}": [_point(size, value, "keys") for size, value in values.items() if value is not None]
        for tau, values in found["values"].items()
    }


def _components(found: dict[str, Any]) -> dict[str, list[Point]]:
    return {
        f"{called}, {tau}": [_point(size, row[name], "keys") for size, row in by_size.items() if row is not None]
        for tau, by_size in found["values"].items()
        for name, called in COMPONENTS.items()
    }


def _agreement(found: dict[str, Any]) -> dict[str, list[Point]]:
    known = {k: share for k, share in found["agreement"].items() if share is not None}
    lines = {"this run": [_point(k, share, "neighbors") for k, share in known.items()]}
    if known and found["chance"] is not None:
        lines["chance"] = [_point(k, found["chance"], "neighbors") for k in known]
    return lines


def _point(x: str, y: float, what: str) -> Point:
    return Point(float(x), y, tooltip=f"{int(x):,} {what}: {y:.4f}")
