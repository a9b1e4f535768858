"""A page that compares runs: verdicts, final figures, settings that differ, curves on the same axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualtemp.config import applicable, setting_names
from dualtemp.errors import UserError
from dualtemp.report.curves import compared_charts
from dualtemp.report.epoch_chart import COLORS, DASHES, line_class
from dualtemp.report.page import link_to, render, write_page
from dualtemp.report.run_groups import describe_mean, furthest_runs, group_runs, has_groups, seed_means
from dualtemp.report.run_page import PAGE, format_value
from dualtemp.report.standing import clear_difference
from dualtemp.report.verdict import verdict, verdict_context
from dualtemp.runs.evaluated_measures import BASELINES, FROZEN, MEANINGS, NAMES, encoder_title
from dualtemp.runs.metrics import PERCENT, accuracies, measures
from dualtemp.runs.record import RunRecord, beside_trained, evaluated, facts_of, number, read_run, rows_of, tested_on

NONE = "\N{EN DASH}"
MOST = COLORS * DASHES


def write_compare_page(paths: Sequence[Path], out: Path) -> Path:
    """Write the page that compares these runs, in the given order."""
    if len(paths) > MOST:
        raise UserError(f"{len(paths)} runs are too many for one page: give at most {MOST}")
    refuse_duplicates(paths)
    return write_page(out, compare_page([read_run(path) for path in paths], out))


def refuse_duplicates(paths: Sequence[Path]) -> None:
    """Raise UserError if a run is given twice."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise UserError(f"{path} is given twice: give different runs")
        seen.add(path.resolve())


def compare_page(runs: Sequence[RunRecord], out: Path) -> str:
    """Render the page as HTML, with links relative to `out`."""
    names = distinct_names([run.path for run in runs])
    named = list(zip(names, runs, strict=True))
    figures, measured, groups = final_figures(runs), evaluated_figures(runs), compared_charts(named)
    parts = (
        ("figures", "Final figures", figures),
        ("evaluated", "Evaluated", measured),
        ("settings", "Settings", True),
    )
    contents = [("verdicts", "Verdicts"), *((id, title) for id, title, there in parts if there)]
    return render(
        "compare.html.j2",
        {
            "runs": [
                {
                    "name": name,
                    "look": line_class(number),
                    "number": number,
                    "method": run.chosen.method,
                    "data": run.data,
                    "status": run.status.word,
                    "epochs": f"{run.epoch} of {run.chosen.epochs}",
                    "verdict": verdict_context(verdict(run.history, facts_of(run), *run.status)),
                    "page": link_to(run.path / PAGE, out) if (run.path / PAGE).is_file() else None,
                }
                for number, (name, run) in enumerate(named)
            ],
            "contents": contents + [(group["id"], group["title"].partition(":")[0]) for group in groups],
            "figures": figures,
            "evaluated": measured,
            "one_set": len({tested_on(run) for run in runs if _has_accuracy(run)}) <= 1,
            "settings": differing_settings(runs),
            "seeds": grouped_figures(runs, names) if has_groups(runs) else [],
            "groups": groups,
        },
    )


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Name each folder by the shortest end of its path that differs from all others."""
    parts = [path.resolve().parts for path in paths]
    names = []
    for mine in parts:
        others = [other for other in parts if other != mine]
        count = next((n for n in range(1, len(mine)) if all(o[-n:] != mine[-n:] for o in others)), len(mine))
        names.append("/".join(mine[-count:]))
    return names


def _has_accuracy(run: RunRecord) -> bool:
    return any(run.last(each.key) is not None for each in accuracies())


def final_figures(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Return a row per measure that any run has: key, title, explanation, and a cell per run with its newest value.

    A cell is the best if it is the highest of at least two runs that were tested on the same images; where runs differ
    in nothing but their seed, none is.
    """
    rows, marks_best = [], not has_groups(runs)  # the best of several seeds is luck
    compared = [each for each in measures().values() if each.compared]
    for each in sorted(compared, key=lambda each: not each.rated):
        values = [each.last(run) for run in runs]
        if any(value is not None for value in values):
            cells = _cells(runs, values, each.form, each.rated and marks_best)
            rows.append({"key": each.key, "title": each.name or each.title, "says": each.says, "cells": cells})
    return rows


def evaluated_figures(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Return rows like those of `final_figures` for what `dualtemp evaluate` measured at the runs' last steps.

    Each cell also has the strongest baseline (raw pixels, color histogram, untrained encoder), the gain over it, and
    whether the gain is clear.
    """
    measured = [_last_measured(run) for run in runs]
    rows, marks_best = [], not has_groups(runs)
    for name in NAMES:
        values = [number(rows_of(found, "trained").get(name, {}).get("top1")) for found in measured]
        if all(value is None for value in values):
            continue
        cells = _cells(runs, values, PERCENT, marks_best)
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
        "encoder": encoder_title(one.encoder),
        "top1": one.other,
        "gain": one.trained - one.other,
        "mark": {1: "✓", -1: "✗", 0: "≈"}[sign],
        "tone": {1: "good", -1: "bad", 0: "open"}[sign],
    }


def grouped_figures(runs: Sequence[RunRecord], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row per group of runs that differ in nothing but their seed: name, seeds, mean figures.

    Runs that have not come as far as the furthest of their group are left out, unless they have stopped themselves.
    """
    groups = group_runs(runs)
    first = [runs[group[0]] for group in groups]
    apart = {name: values for name, values in differing_settings(first) if name != "seed"}
    rows = []
    for place, group in enumerate(groups):
        words = [f"{name} {values[place]}" for name, values in apart.items() if values[place] != NONE]
        some, means = furthest_runs([runs[one] for one in group]), []
        for each in (each for each in measures().values() if each.compared and each.rated):
            values = seed_means((run.chosen.seed, value) for run in some if (value := each.last(run)) is not None)
            means.append((each.name or each.title, describe_mean(values, each.form) if values else NONE))
        seeds = ", ".join(map(str, dict.fromkeys(run.chosen.seed for run in some)))
        rows.append({"name": ", ".join(words) or names[group[0]], "seeds": seeds, "runs": len(some), "means": means})
    return rows


def _cells(
    runs: Sequence[RunRecord], values: Sequence[float | None], form: str, marks_best: bool
) -> list[dict[str, Any]]:
    of_images: dict[str, list[float]] = {}  # values by test images
    for run, value in zip(runs, values, strict=True):
        if value is not None:
            of_images.setdefault(tested_on(run), []).append(value)
    best_of = {images: max(some) for images, some in of_images.items() if max(some) > min(some)}
    cells = []
    for run, value in zip(runs, values, strict=True):
        best = marks_best and value is not None and value == best_of.get(tested_on(run))
        cells.append({"value": value, "text": NONE if value is None else form.format(value), "best": best})
    return cells


def differing_settings(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Return the settings whose values differ between runs, with – where a framework has no such setting."""
    having = [applicable(run.chosen.method) for run in runs]
    rows = []
    for name in setting_names():
        values = [
            format_value(run.chosen.get(name)) if name in its else NONE for run, its in zip(runs, having, strict=True)
        ]
        if len(set(values)) > 1:
            rows.append((name, values))
    return rows
