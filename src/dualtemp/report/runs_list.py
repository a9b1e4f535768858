"""The list of runs below some folders: one line each, damaged ones too. Needs no torch."""

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dualtemp.errors import UserError
from dualtemp.runs.metrics import measures
from dualtemp.runs.record import read_run

# Accuracies by the name that JSON and `--sort` give them.
ACCURACIES = {each.column.lower(): each for each in measures().values() if each.column}
# What to sort by, and whether the largest comes first.
ORDERS = {
    "name": False,
    "method": False,
    "data": False,
    "tau_alpha": False,
    "tau_beta": False,
    "status": False,
    "epoch": True,
    **dict.fromkeys(ACCURACIES, True),
    "date": True,
}
COLOURS = {"running": "cyan", "done": "green", "interrupted": "yellow", "failed": "red", "unreadable": "red"}
SIGNS = {"metrics.jsonl", "environment.json", "checkpoints"}  # beside config.yaml: it is a run's


def find_runs(folder: Path) -> Iterator[Path]:
    """Run folders at or below a folder, in the order of names; nothing inside a run, and each folder once.

    Links are followed; a folder that cannot be read is said on standard error and left out.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            about = here.stat()
            inside = {entry.name: entry for entry in os.scandir(here)}
        except OSError as error:
            print(f"dualtemp: {here} cannot be read ({error.strerror}); left out", file=sys.stderr)
            continue
        if (about.st_dev, about.st_ino) in seen:
            continue
        seen.add((about.st_dev, about.st_ino))
        # A run whose config is gone has metrics; what a kill leaves of a run that never began has not.
        if SIGNS & inside.keys() if "config.yaml" in inside else {"metrics.jsonl", "checkpoints"} <= inside.keys():
            yield here
            continue
        below = [name for name in sorted(inside) if not name.startswith(".") and _is_folder(inside[name])]
        waiting += [here / name for name in reversed(below)]


def described(path: Path, name: str) -> dict[str, Any]:
    """A run as the list has it; one that cannot be read has the status "unreadable" and the reason."""
    row: dict[str, Any] = {"name": name, "path": str(path)}
    try:
        run = read_run(path)
    except (UserError, OSError) as error:
        return row | {"status": "unreadable", "reason": " ".join(str(error).split())}
    chosen = run.chosen
    return row | {
        "method": chosen.method,
        "data": run.data,
        "tau_alpha": chosen.get("tau_alpha"),
        "tau_beta": chosen.in_effect("tau_beta"),
        "status": run.status.word,
        "reason": run.status.reason,
        "epoch": run.epoch,
        "epochs": chosen.epochs,
        **{name: run.last(each.key) for name, each in ACCURACIES.items()},
        "date": run.moved.isoformat(timespec="seconds"),
    }


def runs_below(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """All runs at or below these folders, each once; a folder that is not there is a UserError."""
    rows: dict[Path, dict[str, Any]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is no folder: give one that holds runs, such as `dualtemp runs results/runs`")
        for path in find_runs(folder):
            # Named as one would type it; below the default folder its own name does.
            inside = path.relative_to(folder)
            name = str(inside) if len(folders) == 1 and inside.parts else str(path)
            rows.setdefault(path.resolve(), described(path, name))
    return list(rows.values())


def ordered(rows: Sequence[dict[str, Any]], by: str, backwards: bool = False) -> list[dict[str, Any]]:
    """Rows by one of ORDERS: accuracies, epochs and dates from the highest down; what has no value comes last."""
    there = [row for row in rows if row.get(by) is not None]
    kind = {True: 1, False: 0}
    there.sort(key=lambda row: (kind[isinstance(row[by], str)], row[by]), reverse=ORDERS[by] != backwards)
    return there + [row for row in rows if row.get(by) is None]


def print_runs(rows: Sequence[dict[str, Any]], as_json: bool = False) -> None:
    """Print a table, and below it why runs failed or cannot be read; or JSON."""
    if as_json:
        print(json.dumps([_plain(row) for row in rows], indent=2))
        return
    # Piped into another program, a run is one line, however long.
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 10_000)
    table = Table(box=None, header_style="bold", pad_edge=False)
    accuracies = [each.column for each in ACCURACIES.values()]
    for title in ("run", "method", "data", "tau_alpha", "tau_beta", "status", "epoch", *accuracies, "date"):
        right = title in ("tau_alpha", "tau_beta", "epoch", *accuracies)
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "run", overflow="fold")
    for row in rows:
        status = row["status"]
        cells = [
            escape(row["name"]),
            row.get("method", ""),
            escape(row.get("data", "")),
            _number(row.get("tau_alpha"), "{:g}"),
            _number(row.get("tau_beta"), "{:g}"),
            f"[{COLOURS[status]}]{status}[/]",
            f"{row['epoch']}/{row['epochs']}" if "epoch" in row else "",
            *(_number(row.get(name), "{:.2f}") for name in ACCURACIES),
            row.get("date", "")[:16].replace("T", " "),
        ]
        table.add_row(*cells)
    console.print(table)
    for row in rows:
        if row["status"] in ("failed", "unreadable"):
            console.print(f"{escape(row['name'])} {row['status']}: {escape(row['reason'])}")


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in circles
        return False


def _number(value: Any, form: str) -> str:
    return "" if value is None else value if isinstance(value, str) else form.format(value)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no infinity: tau_beta inf is written as a word."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
