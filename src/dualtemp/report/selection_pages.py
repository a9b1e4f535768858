"""Images selected for labeling as a table, a list or a page with pictures; and what a simulation says of the ways."""

import csv
import io
import json
import math
from pathlib import Path

from dualtemp.atomic_write import write_output
from dualtemp.encoder.select import Selected
from dualtemp.encoder.selection_simulation import Simulation
from dualtemp.quantities import counted
from dualtemp.report.line_chart import Point, line_chart
from dualtemp.report.page import render, write_page
from dualtemp.report.picture_groups import Card, Section, write_search_page

SCORES = {
    "diverse": "gain in similarity",
    "typical": "typicality",
    "hardest": "anchor weight W",
    "uncertain": "1 - margin",
    "random": "",
}
ABOUT = {
    "diverse": "Together these images are most similar to all images: each has one of them near.",
    "typical": "The middle of each cluster, large clusters first.",
    "hardest": "The images with the largest anchor weight W: the encoder takes others for their second view.",
    "uncertain": "The images that a linear classifier, fitted to the labels so far, is least sure of.",
    "random": "Drawn by the seed.",
}


def write_selected(out: Path, run: Path, selected: Selected, most: int) -> None:
    """Write the selection as .csv, .json, .txt (names alone) or .html, which shows the first `most`."""
    ending = out.suffix.lower()
    if ending in (".html", ".htm"):
        _write_page(out, run, selected, most)
        return
    rows = list(zip(selected.names, selected.scores, strict=True))
    if ending == ".txt":
        write_output(out, "".join(f"{name}\n" for name in selected.names))
    elif ending == ".json":
        write_output(out, json.dumps(selected_for_json(selected), indent=1) + "\n")
    else:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("name", "label", "rank", "score"))
        for rank, (name, score) in enumerate(rows, 1):
            writer.writerow((name, "", rank, f"{score:.6g}"))
        write_output(out, text.getvalue())


def selected_for_json(selected: Selected) -> dict[str, object]:
    """The selection for JSON."""
    rows = zip(selected.names, selected.scores, strict=True)
    return {
        "by": selected.by,
        "among": selected.among,
        "labeled": selected.labeled,
        "selected": [{"name": name, "score": None if math.isnan(score) else score} for name, score in rows],
        "unreadable": selected.unreadable,
    }


def _write_page(out: Path, run: Path, selected: Selected, most: int) -> None:
    count = counted(len(selected.names), "image")
    facts = [
        ("Features", str(run)),
        ("Selected", f"{count} of {selected.among:,}, {selected.by}" + f"; {selected.labeled:,} have a label already"),
    ]
    if len(selected.names) > most:
        facts.append(("Shown", f"the first {most}; --out FILE.csv has them all"))
    word = SCORES[selected.by]
    cards = [
        Card(selected.pictures.thumbnail(name), name, f"{rank}", note=f"{word} {score:.4g}" if word else "")
        for rank, (name, score) in enumerate(zip(selected.names[:most], selected.scores, strict=False), 1)
    ]
    write_search_page(out, "Images to label", ABOUT[selected.by], facts, [Section("The most wanted first", cards)])


def simulation_rows(found: Simulation) -> list[tuple[str, str, str, str, str, str]]:
    """Way, labels, accuracy, its difference to random, in how many seeds it is above 0, labels that random needs."""
    rows = []
    for way in found.accuracy:
        for place, budget in enumerate(found.budgets):
            accuracy = found.accuracy[way][:, place]
            deviation = f" ± {accuracy.std(ddof=1):.1f}" if found.seeds > 1 else ""
            told = f"{accuracy.mean():.1f}{deviation}"
            if way == "random":
                rows.append((way, f"{budget:,}", told, "", "", ""))
                continue
            gain, needed = found.gain(way, place), found.needed(way, place)
            more = f"more than {found.random_budgets[-1]:,}" if math.isinf(needed) else f"{needed:,.0f}"
            less = needed <= found.random_budgets[0] and gain.mean() < 0
            better = f"{int((gain > 0).sum())} of {found.seeds}"
            rows.append((way, f"{budget:,}", told, f"{gain.mean():+.1f}", better, f"at most {more}" if less else more))
    return rows


HEADS = ("way", "labels", "accuracy, %", "against random", "better in", "random needs")


def write_simulation(out: Path, run: Path, found: Simulation) -> None:
    """Write what a simulation found as .csv, .json or a page with a chart."""
    ending = out.suffix.lower()
    if ending in (".html", ".htm"):
        series = {}
        for way, accuracy in found.accuracy.items():
            budgets = found.random_budgets if way == "random" else found.budgets
            sd = accuracy.std(0, ddof=1) if found.seeds > 1 else [None] * len(budgets)
            series[way] = [
                Point(budget, float(mean), None if each is None else float(each), f"{way}: {mean:.1f} % at {budget:,}")
                for budget, mean, each in zip(budgets, accuracy.mean(0), sd, strict=True)
            ]
        context = {
            "run": str(run),
            "found": found,
            "chart": line_chart(series, "labels", "accuracy, %"),
            "heads": HEADS,
            "rows": simulation_rows(found),
        }
        write_page(out, render("selection.html.j2", context))
    elif ending == ".json":
        write_output(out, json.dumps(simulation_for_json(found), indent=1) + "\n")
    else:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("way", "labels", "seed", "accuracy"))
        for way, accuracy in found.accuracy.items():
            budgets = found.random_budgets if way == "random" else found.budgets
            for seed, row in enumerate(accuracy):
                for budget, value in zip(budgets, row, strict=True):
                    writer.writerow((way, budget, seed, f"{value:.4f}"))
        write_output(out, text.getvalue())


def simulation_for_json(found: Simulation) -> dict[str, object]:
    """Budgets, and accuracies by way and seed, for JSON."""
    accuracy = {way: values.tolist() for way, values in found.accuracy.items()}
    return {**found._asdict(), "accuracy": accuracy}
