"""The part of a page with `dualtemp evaluate` results: encoders side by side, and the trained one class by class."""

from collections.abc import Sequence
from typing import Any

from dualtemp.report.standing import clear_difference, gain_bounds
from dualtemp.runs.evaluated_measures import ENCODERS, FROZEN, MEANINGS, NAMES, encoder_title
from dualtemp.runs.record import RunRecord, beside_trained, evaluated, number, rows_of

MOST_SHOWN = 20  # classes: with more, the hardest ones are listed instead of the whole matrix
BY_CLASS = ("linear probe", "kNN", "fine-tuning")  # the first one available is shown class by class


def evaluated_part(run: RunRecord) -> dict[str, Any] | None:
    """Return what the page shows of evaluation.json: a table per data set, and accuracies class by class."""
    found, rows, old = evaluated(run)
    sets = sorted(dict.fromkeys(str(row.get("data")) for row in rows), key=lambda data: data != "validation")
    tables = [table for data in sets if (table := _table(rows, data)) is not None]
    if not tables:
        return None
    return {
        "tables": tables,
        "classes": _class_by_class(rows, tables[0]["data"]),
        "step": found.get("step"),
        "made": str(found.get("made") or "")[:16].replace("T", " "),
        "old": old,
    }


def _table(rows: Sequence[dict[str, Any]], data: str) -> dict[str, Any] | None:
    """Build a table with encoders as columns, the trained one first, and measures as rows."""
    there = dict.fromkeys(str(row.get("encoder")) for row in rows if row.get("data") == data)
    order = ["trained", *(name for name in ENCODERS if name != "trained"), *there]
    by_encoder = {name: rows_of(rows, name, data) for name in dict.fromkeys(order) if name in there}
    by_encoder = {name: found for name, found in by_encoder.items() if found}
    measures = dict.fromkeys((*NAMES, *(name for found in by_encoder.values() for name in found)))
    trained = by_encoder.get("trained", {})
    # The measures by which a baseline is compared, counted as in the verdict.
    shared = {name: sum(key in trained and key in FROZEN for key in found) for name, found in by_encoder.items()}
    lines = []
    for name in measures:
        cells = {encoder: found[name] for encoder, found in by_encoder.items() if name in found}
        if cells:
            any_row = next(iter(cells.values()))
            lines.append(
                {
                    "name": name,
                    "says": MEANINGS.get(name, ""),
                    "labels": number(any_row.get("labels")),
                    "images": number(any_row.get("images")),
                    "cells": [
                        _cell(cells.get(encoder), trained.get(name), max(1, shared[encoder])) for encoder in by_encoder
                    ],
                }
            )
    if not lines:
        return None
    images = sorted({int(line["images"]) for line in lines if line["images"]})
    return {
        "data": data,
        "encoders": [encoder_title(encoder) for encoder in by_encoder],
        "images": images,
        "rows": lines,
        "compared": any(cell and cell["mark"] for line in lines for cell in line["cells"]),
    }


def _cell(row: dict[str, Any] | None, trained: dict[str, Any] | None, measures: int) -> dict[str, Any] | None:
    """Return an accuracy and the trained encoder's gain over it; values measured while training are not compared."""
    if row is None:
        return None
    top5, deviation = number(row.get("top5")), number(row.get("deviation"))
    cell: dict[str, Any] = {
        "top1": row["top1"],
        "top5": None if top5 is None else f"{top5:.2f} %",
        "deviation": None if deviation is None else f"{deviation:.1f}",
        "trained": row is trained,
        "mark": "",
    }
    one = None if row is trained or row.get("encoder") == "online" else beside_trained(trained, row)
    if one is None:
        return cell
    low, high = gain_bounds(one)
    sign = clear_difference(one, measures)
    return {
        **cell,
        "mark": {1: "✓", -1: "✗", 0: "≈"}[sign],
        "tone": {1: "good", -1: "bad", 0: "open"}[sign],
        "says": {1: "trained is clearly better", -1: "trained is clearly worse", 0: "no clear difference"}[sign],
        "gain": one.trained - one.other,
        "interval": f"95 % interval {low:+.1f} to {high:+.1f} points",
    }


def _class_by_class(rows: Sequence[dict[str, Any]], data: str) -> dict[str, Any] | None:
    """Return the accuracy of each class, hardest first, and the confusions: a matrix for few classes, else a list."""
    trained = rows_of(rows, "trained", data)
    name = next((name for name in BY_CLASS if isinstance(trained.get(name, {}).get("by_class"), list)), None)
    if name is None:
        return None
    try:
        found = [(str(one["class"]), int(one["images"]), int(one["right"])) for one in trained[name]["by_class"]]
        confused = [(str(one["class"]), str(one["as"]), int(one["images"])) for one in trained[name]["confused"]]
    except (KeyError, TypeError, ValueError):
        return None
    if len(found) < 2 or min(images for _, images, _ in found) < 1:
        return None
    total, right = sum(images for _, images, _ in found), sum(right for *_, right in found)
    shares = [
        {"name": label, "images": images, "right": right, "share": right / images} for label, images, right in found
    ]
    commonest = max(shares, key=lambda one: one["images"])
    whole = right + sum(images for *_, images in confused) == total
    return {
        "measure": name,
        "classes": len(shares),
        "shares": sorted(shares, key=lambda one: one["share"])[:MOST_SHOWN],
        "commonest": commonest,
        "chance": commonest["images"] / total,
        "matrix": _matrix(shares, confused) if whole and len(shares) <= MOST_SHOWN else None,
        "confused": confused[:MOST_SHOWN],
    }


def _matrix(shares: Sequence[dict[str, Any]], confused: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    """Build the confusion matrix: rows of (class, cells); columns are all classes that occur as label or answer."""
    names = list(dict.fromkeys((*(one["name"] for one in shares), *(named for _, named, _ in confused))))
    counts = {(label, named): images for label, named, images in confused}
    counts |= {(one["name"], one["name"]): one["right"] for one in shares}
    return {
        "names": names,
        "rows": [
            (
                one["name"],
                [
                    {
                        "images": counts.get((one["name"], named), 0),
                        "share": counts.get((one["name"], named), 0) / one["images"],
                        "right": named == one["name"],
                    }
                    for named in names
                ],
            )
            for one in shares
        ],
    }
