"""The outputs of a grid: a page, tables, a figure. Needs no torch."""

import base64
import shlex
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import write_output
from dualtemp.config import MEASURED_ON
from dualtemp.errors import UserError
from dualtemp.grids.figure import draw_grid
from dualtemp.grids.grid_table import (
    cells_csv,
    contrasts_csv,
    describe_cell,
    describe_contrast,
    describe_intervals,
    latex_tables,
)
from dualtemp.grids.measured_grid import MeasuredGrid
from dualtemp.quantities import counted
from dualtemp.report.drawing import to_pdf, to_svg
from dualtemp.report.page import render

ENDINGS = (".html", ".csv", ".tex", ".svg", ".pdf")


def check_outputs(paths: list[Path]) -> None:
    """Raise UserError for files that cannot be written, before anything is run."""
    for path in paths:
        if path.is_dir() or path.suffix.lower() not in ENDINGS:
            raise UserError(f"--out {path}: give a file's name that ends with {', '.join(ENDINGS)}")


def write_grid(found: MeasuredGrid, path: Path, command: list[str]) -> list[Path]:
    """Write the output that the file's ending names; .csv also writes the comparisons beside it."""
    ending = path.suffix.lower()
    if ending == ".csv":
        beside = path.with_name(f"{path.stem}-comparisons.csv")
        write_output(path, cells_csv(found))
        write_output(beside, contrasts_csv(found))
        return [path, beside]
    contents = {".html": lambda: grid_page(found, command), ".tex": lambda: latex_tables(found)}
    write_output(path, contents[ending]() if ending in contents else _figure(found, ending))
    return [path]


def grid_page(found: MeasuredGrid, command: list[str]) -> str:
    """Render the grid's page as HTML: one file, no network."""
    a = found.grid.artifact
    validated = {cell.settings.get("validate", "test") for cell in a.cells}
    context: dict[str, Any] = {
        "found": found,
        "a": a,
        "about": describe_intervals(found),
        "measured_on": " and ".join(MEASURED_ON[word] for word in sorted(validated)),
        "cells": {place: describe_cell(found, *place) for place in found.table},
        "notes": _notes(found),
        "contrasts": [(c, describe_contrast(c, found.digits), c.is_clear(found.confidence)) for c in found.contrasts],
        "counted": counted,
        # As an image, since the page's style would change the font, and with it what fits.
        "figure": base64.b64encode(_figure(found, ".svg")).decode() if _has_values(found) else "",
        "settings": {place: {**a.fixed, **a.cell(*place).settings} for place in found.table},
        "level": found.confidence,
        "level_of_claims": found.grid.rules.planned_looks("").level,
        "command": shlex.join(command),
    }
    return render("grid.html.j2", context)


def _has_values(found: MeasuredGrid) -> bool:
    return any(cell.values for cell in found.table.values())


def _figure(found: MeasuredGrid, ending: str) -> bytes:
    a, m = found.grid.artifact, found.measure
    unit = ", %" if m.form.endswith("%") else ""
    shapes, width, height = draw_grid(a, found.table, f"{m.name or m.title}{unit}", found.confidence)
    if not shapes:
        raise UserError("there is nothing to draw yet: no cell of this grid has a result")
    if ending == ".pdf":
        return to_pdf(shapes, width, height, a.title)
    return to_svg(shapes, width, height, a.title).encode(errors="backslashreplace")  # the title may be a file name


def _notes(found: MeasuredGrid) -> list[str]:
    """Say why runs failed."""
    return [
        f"{', '.join(filter(None, place))}, seed {seed}: {reason}"
        for place, cell in found.table.items()
        for seed, reason in cell.failed.items()
    ]
