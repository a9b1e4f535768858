"""RUN/evaluation.json: what was measured of a run's encoder, on whatever data. Needs no torch."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dualtemp.atomic_write import whole_file
from dualtemp.errors import writing
from dualtemp.file_lock import locked
from dualtemp.runs.evaluated_measures import ENCODERS, NAMES

EVALUATION_FILE = "evaluation.json"
VALIDATION = "validation"  # the name of a run's own data in the file
LABELS_OF = ", labels of "  # between the names of data and of their label file


def result(
    name: str,
    encoder: str,
    data: str,
    top1: float,
    top5: float | None,
    images: int,
    labels: int,
    began: float | None = None,
) -> dict[str, Any]:
    """Build a row of the file, with accuracies in %.

    Args:
        name: of the measure, see NAMES.
        encoder: see ENCODERS.
        data: "validation", or the name of other data.
        top1: share of right answers, from 0 to 1.
        top5: the same; None if it is meaningless, as with five classes.
        images: number of images tested on.
        labels: number of labels learned from.
        began: when the measurement began, on the monotonic clock; None if unknown.
    """
    return {
        "name": name,
        "encoder": encoder,
        "data": data,
        "top1": 100 * top1,
        "top5": None if top5 is None else 100 * top5,
        "images": images,
        "labels": labels,
        "seconds": None if began is None else round(time.monotonic() - began, 3),
    }


def read_evaluation(run: Path) -> dict[str, Any]:
    """Read the file; returns no results if it is missing or damaged."""
    try:
        found = json.loads((run / EVALUATION_FILE).read_text())
        step, rows = found["step"], [row for row in found["measured"] if {"name", "encoder", "data"} <= set(row)]
        return {"step": step, "made": str(found["made"]), "sources": dict(found.get("sources", {})), "measured": rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {"step": None, "made": "", "sources": {}, "measured": []}


def add_to_evaluation(
    run: Path, step: int, measured: list[dict[str, Any]], names: Sequence[str] = ()
) -> dict[str, Any]:
    """Add results to the file, replacing earlier ones of the same name, encoder and data; returns its content.

    Results of other weights are dropped: the run was trained further since. Only one process writes at a time, so that
    no result is lost. names: of the data, from the shortest to a unique one; the first that no other data in the file
    has becomes the rows' `data`.
    """
    path = run / EVALUATION_FILE
    with writing(path, "make the run writable"), locked(run / f".{path.name}.lock", what=path, remove=True):
        before = read_evaluation(run)
        rows = {_key(row): row for row in before["measured"]} if before["step"] == step else {}
        sources = before["sources"] if before["step"] == step else {}
        if names:
            name = next(name for name in names if sources.get(name, names[-1]) == names[-1])
            sources[name] = names[-1]
            for row in measured:
                row["data"] = name
        rows |= {_key(row): row for row in measured}
        made = datetime.now(UTC).isoformat(timespec="seconds")
        content = {"step": step, "made": made, "sources": sources, "measured": sorted(rows.values(), key=place)}
        with whole_file(path) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())
    return content


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["name"], row["encoder"], row["data"]


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    """Sort key of a result: the run's own data first, then by measure, then by encoder."""
    name, encoder, data = _key(row)
    at = NAMES.index(name) if name in NAMES else len(NAMES)
    return "" if data == "validation" else data, at, ENCODERS.index(encoder) if encoder in ENCODERS else len(ENCODERS)
