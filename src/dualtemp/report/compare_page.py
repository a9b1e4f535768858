"""One page that puts runs side by side: verdicts, final figures, settings that differ, curves on the same axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualtemp.config import applicable, setting_names
from dualtemp.errors import UserError
from dualtemp.report.curves import compared_charts
from dualtemp.report.epoch_chart import COLOURS, DASHES, colour_class
from dualtemp.report.page import link_to, rendered, write_page
from dualtemp.report.run_page import PAGE, shown
from dualtemp.report.standing import clear_difference
from dualtemp.report.verdict import told, verdict
from dualtemp.runs.evaluated_measures import BASELINES, FROZEN, MEANINGS, NAMES
from dualtemp.runs.metrics import PERCENT, measures
from dualtemp.runs.record import RunRecord, beside_trained, evaluated, facts_of, number, part, read_run, rows_of

NONE = "\N{EN DASH}"
MOST = COLOURS * DASHES


def write_compare_page(paths: Sequence[Path], out: Path) -> Path:
    """Write the page of several runs, in the order in which they are given."""
    if len(paths) > MOST:
        raise UserError(f"{len(paths)} runs are too many for one page: give at most {MOST}")
    refuse_twice(paths)
    return write_page(out, compare_page([read_run(path) for path in paths], out))


def refuse_twice(paths: Sequence[Path]) -> None:
    """A run that is named twice is a mistake."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise UserError(f"{path} is named twice: give different runs")
        seen.add(path.resolve())


def compare_page(runs: Sequence[RunRecord], out: Path) -> str:
    """The page of runs as HTML, with links for the place that it is written to."""
    names = told_apart([run.path for run in runs])
    named = list(zip(names, runs, strict=True))
    figures, measured, groups = final_figures(runs), evaluated_figures(runs), compared_charts(named)
    parts = (
        ("figures", "Final figures", figures),
        ("evaluated", "Evaluated", measured),
        ("settings", "Settings", True),
    )
    contents = [("verdicts", "Verdicts"), *((id, title) for id, title, there in parts if there)]
    return rendered(
        "compare.html.j2",
        {
            "runs": [
                {
                    "name": name,
                    "look": colour_class(number),
                    "number": number,
                    "method": run.chosen.method,
                    "data": run.data,
                    "status": run.status.word,
                    "epochs": f"{run.epoch} of {run.chosen.epochs}",
                    "verdict": told(verdict(run.history, facts_of(run), *run.status)),
                    "page": link_to(run.path / PAGE, out) if (run.path / PAGE).is_file() else None,
                }
                for number, (name, run) in enumerate(named)
            ],
            "contents": contents + [(group["id"], group["title"].partition(":")[0]) for group in groups],
            "figures": figures,
            "evaluated": measured,
            "one_set": len({tested_on(run) for run in runs if run.last("knn_top1") is not None}) <= 1,
            "settings": differing_settings(runs),
            "groups": groups,
        },
    )


def told_apart(paths: Sequence[Path]) -> list[str]:
    """A name for each of different folders: its own, with as many of those above as tell it from the others."""
    parts = [path.resolve().parts for path in paths]
    names = []
    for mine in parts:
        others = [other for other in parts if other != mine]
        count = next((n for n in range(1, len(mine)) if all(o[-n:] != mine[-n:] for o in others)), len(mine))
        names.append("/".join(mine[-count:]))
    return names


def tested_on(run: RunRecord) -> str:
    """What accuracies were read on: the fingerprint of the images or of their names, or where they came from."""
    images = part(run.environment, "test")
    return str(images.get("fingerprint") or images.get("names") or run.chosen.data)


def final_figures(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Newest figures that any run has: key, title, what it says, and for each run its text and whether it is the best.

    The best is the highest of at least two runs that were tested on the same images.
    """
    rows = []
    compared = [each for each in measures().values() if each.compared]
    for each in sorted(compared, key=lambda each: not each.rated):
        values = [each.last(run) for run in runs]
        if any(value is not None for value in values):
            cells = _cells(runs, values, each.form, each.rated)
            rows.append({"key": each.key, "title": each.name or each.title, "says": each.says, "cells": cells})
    return rows


def evaluated_figures(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """What `dualtemp evaluate` measured of the runs' last steps, a measure a row, as `final_figures` has them.

    Each cell also has the strongest rival (raw pixels, colour histogram, untrained encoder), what is gained over it,
    and whether that is clear.
    """
    measured = [_last_measured(run) for run in runs]
    rows = []
    for name in NAMES:
        values = [number(rows_of(found, "trained").get(name, {}).get("top1")) for found in measured]
        if all(value is None for value in values):
            continue
        cells = _cells(runs, values, PERCENT, True)
        for cell, found in zip(cells, measured, strict=True):
            cell["rival"] = _strongest_rival(found, name)
        rows.append({"key": name, "title": name, "says": MEANINGS[name], "cells": cells})
    return rows


def _last_measured(run: RunRecord) -> list[dict[str, Any]]:
    _, rows, old = evaluated(run)
    return [] if old else rows


def _strongest_rival(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    trained = rows_of(rows, "trained").get(name)
    there = [row for encoder in BASELINES if (row := rows_of(rows, encoder).get(name)) is not None]
    best = max(there, key=lambda row: row["top1"], default=None)
    one = None if best is None else beside_trained(trained, best)
    if one is None:
        return None
    shared = set(FROZEN) & rows_of(rows, "trained").keys() & rows_of(rows, one.encoder).keys()
    sign = clear_difference(one, max(1, len(shared)))  # as on the run's own page
    return {
        "encoder": one.encoder,
        "top1": one.other,
        "gain": one.trained - one.other,
        "mark": {1: "✓", -1: "✗", 0: "≈"}[sign],
        "tone": {1: "good", -1: "bad", 0: "open"}[sign],
    }


def _cells(runs: Sequence[RunRecord], values: Sequence[float | None], form: str, rated: bool) -> list[dict[str, Any]]:
    cells = []
    for run, value in zip(runs, values, strict=True):
        rivals = [v for r, v in zip(runs, values, strict=True) if v is not None and tested_on(r) == tested_on(run)]
        best = rated and value is not None and len(rivals) > 1 and value == max(rivals) > min(rivals)
        cells.append({"value": value, "text": NONE if value is None else form.format(value), "best": best})
    return cells


def differing_settings(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Settings whose values are not the same for all runs; – where a framework has no such setting."""
    having = [applicable(run.chosen.method) for run in runs]
    rows = []
    for name in setting_names():
        values = [shown(run.chosen.get(name)) if name in its else NONE for run, its in zip(runs, having, strict=True)]
        if len(set(values)) > 1:
            rows.append((name, values))
    return rows
