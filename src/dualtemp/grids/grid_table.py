"""The table of a grid for terminals, spreadsheets and papers: text, CSV, LaTeX. Needs no torch."""

import csv
import io

from dualtemp.grids.claims import percent
from dualtemp.grids.contrasts import Contrast
from dualtemp.grids.measured_grid import MeasuredGrid, describe_trouble
from dualtemp.report.runs_table import escape_latex

NONE = "\N{EN DASH}"
PLUS_MINUS = "\N{PLUS-MINUS SIGN}"


def cells_csv(found: MeasuredGrid) -> str:
    """Return CSV with one line per cell: mean, interval, and the value of every seed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    a = found.grid.artifact
    seeds = [f"seed {seed}" for seed in found.seeds]
    writer.writerow([a.row_title or "row", a.column_title or "column", "seeds", "mean", "low", "high", *seeds])
    for (row, column), cell in found.table.items():
        interval = found.interval(cell)
        summary = ["", "", ""] if interval is None else [interval.effect, interval.low, interval.high]
        values = [cell.values.get(seed, "failed" if seed in cell.failed else "") for seed in found.seeds]
        writer.writerow([row, column, len(cell.values), *("" if x is None else x for x in summary), *values])
    return file.getvalue()


def contrasts_csv(found: MeasuredGrid) -> str:
    """Return CSV with one line per comparison."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["where", "first", "second", "seeds", "difference", "low", "high", "p", "p of all (Holm)"])
    for c in found.contrasts:
        i = c.interval
        numbers = ["" if x is None else x for x in (i.effect, i.low, i.high, c.p, c.p_of_all)]
        writer.writerow([c.where, c.first, c.second, c.seeds, *numbers])
    return file.getvalue()


def latex_tables(found: MeasuredGrid) -> str:
    """Return two tabulars: cells as mean and half the interval's width, and the comparisons."""
    a = found.grid.artifact
    head = [escape_latex(a.row_title), *map(escape_latex, a.columns)]
    lines = [" & ".join(head) + r" \\", r"\hline"]
    for row in a.rows:
        cells = [escape_latex(describe_cell(found, row, column)) for column in a.columns]
        lines.append(" & ".join([escape_latex(row), *(c.replace(PLUS_MINUS, r"$\pm$") for c in cells)]) + r" \\")
    text = _comment(found) + _tabular("l" + "r" * len(a.columns), lines)
    if found.contrasts:
        lines = [r" & & difference & interval & $p$ & $p$ of all \\", r"\hline"]
        for c in found.contrasts:
            words = [escape_latex(c.where), f"{escape_latex(c.first)} $-$ {escape_latex(c.second)}"]
            numbers = [_in_math(word) for word in describe_contrast(c, found.digits)]
            lines.append(" & ".join([*words, *numbers]) + r" \\")
        text += "\n" + _tabular("llrrrr", lines)
    return text


def describe_cell(found: MeasuredGrid, row: str, column: str) -> str:
    """Describe a cell as mean and half of its interval: 53.21 ± 0.40."""
    cell = found.table[row, column]
    interval, trouble = found.interval(cell), describe_trouble(cell)
    words = [NONE] if interval is None else [f"{interval.effect:.{found.digits}f}"]
    if interval is not None and interval.low is not None:
        words.append(f"{PLUS_MINUS} {(interval.bounds[1] - interval.bounds[0]) / 2:.{found.digits}f}")
    return " ".join([*words, f"({trouble})"] if trouble else words)


def describe_contrast(c: Contrast, digits: int = 2) -> list[str]:
    """Return difference, interval, p and p of all contrasts as words."""
    bounds = [] if c.interval.low is None else [f"{bound:+.{digits}f}" for bound in c.interval.bounds]
    interval = f"[{', '.join(bounds)}]" if bounds else NONE
    return [f"{c.interval.effect:+.{digits}f}", interval, *(NONE if p is None else _p(p) for p in (c.p, c.p_of_all))]


def describe_intervals(found: MeasuredGrid) -> str:
    """A sentence that explains numbers, intervals and tests."""
    m = found.measure
    return (
        f"{m.name or m.title} of the last epoch: mean {PLUS_MINUS} half of the {percent(found.confidence)} interval "
        "(Student's t). Differences are paired by seed; p is that of the paired t test, p of all is adjusted for all "
        "comparisons of the grid (Holm)."
    )


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def _in_math(word: str) -> str:
    return "--" if word == NONE else f"${word}$"


def _comment(found: MeasuredGrid) -> str:
    sentence = describe_intervals(found).replace(PLUS_MINUS, "+-")
    return f"% {found.grid.artifact.title.splitlines()[0]}. {sentence}\n"


def _tabular(columns: str, lines: list[str]) -> str:
    body = "\n".join(lines)
    return f"\\begin{{tabular}}{{{columns}}}\n\\hline\n{body}\n\\hline\n\\end{{tabular}}\n"
