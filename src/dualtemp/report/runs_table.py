"""Figures of runs as a table for other programs: CSV with a line per run, LaTeX with a column. Needs no torch."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import write_output
from dualtemp.report.compare_page import (
    NONE,
    differing_settings,
    distinct_names,
    evaluated_figures,
    final_figures,
    refuse_duplicates,
)
from dualtemp.runs.record import RunRecord, read_run

ABOUT = ("method", "data", "epochs")  # always included, whether they differ or not
SPECIAL = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def write_runs_table(paths: Sequence[Path], out: Path) -> Path:
    """Write the figures of the compare page as .csv or .tex, by the file's ending."""
    refuse_duplicates(paths)
    runs = [read_run(path) for path in paths]
    write_output(out, (csv_table if out.suffix.lower() == ".csv" else latex_table)(runs))
    return out


def csv_table(runs: Sequence[RunRecord]) -> str:
    """Return CSV with a line per run: name, differing settings, last values of metrics.jsonl, evaluated top-1 in %."""
    file = io.StringIO()
    rows = _rows(runs)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["run", *(key for key, _, _ in rows)])
    for number, name in enumerate(distinct_names([run.path for run in runs])):
        values = [cells[number] for _, _, cells in rows]
        writer.writerow([name, *("" if cell["value"] is None else cell["value"] for cell in values)])
    return file.getvalue()


def latex_table(runs: Sequence[RunRecord]) -> str:
    """Return plain LaTeX with a column per run; the best accuracy among runs with the same test images is bold."""
    names = distinct_names([run.path for run in runs])
    lines = [" & ".join(("", *map(escape_latex, names))) + r" \\", r"\hline"]
    for _, title, cells in _rows(runs):
        words = [
            rf"\textbf{{{escape_latex(cell['text'])}}}" if cell["best"] else escape_latex(cell["text"])
            for cell in cells
        ]
        lines.append(" & ".join((escape_latex(title), *words)) + r" \\")
    body = "\n".join(lines)
    return f"\\begin{{tabular}}{{l{'r' * len(runs)}}}\n\\hline\n{body}\n\\hline\n\\end{{tabular}}\n"


def _rows(runs: Sequence[RunRecord]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return (key, title, cells), with a cell per run."""
    about = {
        "method": [run.chosen.method for run in runs],
        "data": [run.data for run in runs],
        "epochs": [str(run.epoch) for run in runs],
    }
    about |= {name: values for name, values in differing_settings(runs) if name not in ABOUT}
    rows = [(name, name, [_word(value) for value in values]) for name, values in about.items()]
    rows += [(row["key"], row["title"], row["cells"]) for row in final_figures(runs)]
    return rows + [
        (f"evaluated {row['key']}", f"{row['title']}, evaluated", row["cells"]) for row in evaluated_figures(runs)
    ]


def _word(value: str) -> dict[str, Any]:
    return {"value": None if value == NONE else value, "text": value, "best": False}


def escape_latex(text: str) -> str:
    """Write text as LaTeX shows it, also at the beginning of a line: there [ and * would belong to the \\\\ before."""
    escaped = "".join(SPECIAL.get(character, character) for character in text).replace(NONE, "--")
    return "{}" + escaped if text.lstrip().startswith(("[", "*")) else escaped
