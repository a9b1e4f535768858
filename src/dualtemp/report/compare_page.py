"""One page that puts runs side by side: verdicts, final figures, settings that differ, curves on the same axes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError
from dualtemp.report.curves import MEASURES, PERCENT, compared_charts
from dualtemp.report.epoch_chart import COLOURS, DASHES, colour_class
from dualtemp.report.page import rendered, write_page
from dualtemp.report.run_page import applicable, shown
from dualtemp.report.run_record import RunRecord, facts_of, part, read_run
from dualtemp.report.verdict import told, verdict

NONE = "\N{EN DASH}"
MOST = COLOURS * DASHES
# Title, form, and whether the highest of comparable runs is marked as the best.
FIGURES: dict[str, tuple[str, str, bool]] = {
    "probe_top1": ("probe, top-1", PERCENT, True),
    "probe_top5": ("probe, top-5", PERCENT, True),
    "knn_top1": ("kNN, top-1", PERCENT, True),
    "loss": ("loss", "{:.4g}", False),
    **{
        key: (MEASURES[key].title, MEASURES[key].form, False)
        for key in (
            "entropy",
            "hardest_tenth",
            "W_mean",
            "W_spread",
            "alignment",
            "uniformity",
            "spread",
            "effective_rank",
        )
    },
    "images_per_second": ("images a second", "{:,.0f}", False),
}


def write_compare_page(paths: Sequence[Path], out: Path) -> Path:
    """Write the page of several runs, in the order in which they are given."""
    if len(paths) > MOST:
        raise UserError(f"{len(paths)} runs are too many for one page: give at most {MOST}")
    seen: dict[Path, Path] = {}
    for path in paths:
        if path.resolve() in seen:
            raise UserError(f"{path} is named twice: give different runs")
        seen[path.resolve()] = path
    return write_page(out, compare_page([read_run(path) for path in paths]))


def compare_page(runs: Sequence[RunRecord]) -> str:
    """The page of runs as HTML."""
    names = told_apart([run.path for run in runs])
    named = list(zip(names, runs, strict=True))
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
                }
                for number, (name, run) in enumerate(named)
            ],
            "figures": final_figures(runs),
            "one_set": len({tested_on(run) for run in runs if run.last("knn_top1") is not None}) <= 1,
            "settings": differing_settings(runs),
            "groups": compared_charts(named),
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
    """Last figures that any run has: title, and for each run the value as text and whether it is the best.

    The best is the highest of at least two runs that were tested on the same images.
    """
    rows = []
    for key, (title, form, rated) in FIGURES.items():
        values = [run.last(key) for run in runs]
        if all(value is None for value in values):
            continue
        cells = []
        for run, value in zip(runs, values, strict=True):
            rivals = [v for r, v in zip(runs, values, strict=True) if v is not None and tested_on(r) == tested_on(run)]
            best = rated and value is not None and len(rivals) > 1 and value == max(rivals) > min(rivals)
            cells.append({"text": NONE if value is None else form.format(value), "best": best})
        rows.append({"key": key, "title": title, "cells": cells})
    return rows


def differing_settings(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Settings whose values are not the same for all runs; – where a framework has no such setting."""
    having = [set(applicable(run.chosen)) for run in runs]
    rows = []
    for name in type(runs[0].chosen).model_fields:
        values = [
            shown(getattr(run.chosen, name)) if name in its else NONE for run, its in zip(runs, having, strict=True)
        ]
        if len(set(values)) > 1:
            rows.append((name, values))
    return rows
