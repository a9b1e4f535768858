"""The figure of a grid, as a browser draws it."""

import re
from itertools import combinations
from pathlib import Path
from typing import Any

from dualtemp.grids.artifact import Artifact
from dualtemp.grids.comparisons import MeasuredCell
from dualtemp.grids.figure import PAGE, draw_grid
from dualtemp.report.drawing import to_svg

ROWS = ["InfoNCE", "dual temperature", "equal (DCL)", "memory (SogCLR)", "MoCo", "SimSiam", "VICReg", "M" * 40]
BOXES = """Array.from(document.querySelectorAll('text'), each => {
    const box = each.getBoundingClientRect();
    return [each.textContent, box.left, box.top, box.right, box.bottom];
})"""


def figure(rows: list[str], columns: list[str], path: Path) -> Path:
    artifact = Artifact(
        "a", 0, "a", "a", rows={row: {} for row in rows}, columns={column: {} for column in columns}, column_title="c"
    )
    table = {(r, c): MeasuredCell({1: 40.0 + i, 2: 42.0}) for i, r in enumerate(rows) for c in columns}
    path.write_text(to_svg(*draw_grid(artifact, table, "kNN, %", 0.95), "a"))
    return path


def test_no_name_covers_another_or_leaves_the_figure(tmp_path: Path, open_page: Any) -> None:
    drawn = figure(ROWS, ["16", "a rather long name of a column", "256"], tmp_path / "a.svg")
    view, told = open_page(drawn)
    width, height = view.evaluate("['width', 'height'].map(side => document.documentElement[side].baseVal.value)")
    for font in ("Helvetica, Arial", "DejaVu Sans"):  # the widths that the figure counts with, and wider ones
        view.evaluate(f"document.documentElement.setAttribute('font-family', '{font}')")
        boxes: list[tuple[str, float, float, float, float]] = view.evaluate(BOXES)
        assert set(ROWS) <= {name for name, *_ in boxes}
        for name, left, top, right, bottom in boxes:
            assert min(left, top) >= 0, name
            assert right <= width, name
            assert bottom <= height, name
        for (name, *a), (other, *b) in combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], f"{name} and {other} in {font}"
    assert told == []


def test_fourteen_rows_have_fourteen_colors(tmp_path: Path) -> None:
    drawn = figure([f"row {number}" for number in range(14)], ["a"], tmp_path / "a.svg").read_text()
    assert len(set(re.findall(r'r="3\.6"[^>]*fill="(#\w+)"|fill="(#\w+)"[^>]*r="3\.6"', drawn))) == 14


def test_a_wide_figure_fits_into_a_page_as_long_as_its_cells_stay_apart(tmp_path: Path) -> None:
    def width(rows: int, columns: int) -> float:
        names = [f"{number}" for number in range(rows)], [f"{number}" for number in range(columns)]
        return float(re.findall(r'width="([\d.]+)"', figure(*names, tmp_path / "a.svg").read_text())[0])

    assert width(7, 3) == 22 * 8 * 3 + 72, "as far apart as ever"
    assert width(7, 6) == PAGE
    assert width(7, 12) == 13 * 8 * 12 + 72, "wider than a page"
