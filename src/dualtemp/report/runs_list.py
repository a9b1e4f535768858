"""The list of runs below folders: one line each, including damaged ones. Needs no torch."""

import hashlib
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
from dualtemp.evaluation.judge import Forecast, chance_better, forecast, read_judged
from dualtemp.report.run_groups import group_key
from dualtemp.runs.metrics import accuracies
from dualtemp.runs.record import read_run, tested_on
from dualtemp.runs.thresholds import SURE

# Accuracies by their name in JSON and `--sort`.
ACCURACIES = {each.column.lower(): each for each in accuracies()}
# What to sort by, and whether the largest comes first.
ORDERS = {
    "name": False,
    "method": False,
    "data": False,
    "tau_alpha": False,
    "tau_beta": False,
    "seed": False,
    "status": False,
    "epoch": True,
    **dict.fromkeys(ACCURACIES, True),
    "forecast": True,
    "date": True,
}
COLORS = {"running": "cyan", "done": "green", "interrupted": "yellow", "failed": "red", "unreadable": "red"}
SIGNS = {"metrics.jsonl", "environment.json", "checkpoints"}  # with config.yaml, any of these marks a run folder


def find_runs(folder: Path, report: bool = True) -> Iterator[Path]:
    """Yield run folders at or below a folder, sorted by name, each once; runs are not searched for further runs.

    Links are followed. A folder that cannot be read is left out, and reported on standard error unless `report` is off.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            about = here.stat()
            inside = {entry.name: entry for entry in os.scandir(here)}
        except OSError as error:
            if report:
                print(f"dualtemp: {here} cannot be read ({error.strerror}); left out", file=sys.stderr)
            continue
        if (about.st_dev, about.st_ino) in seen:
            continue
        seen.add((about.st_dev, about.st_ino))
        # A run whose config is gone still has metrics; what a kill leaves of a run that never started has none.
        if SIGNS & inside.keys() if "config.yaml" in inside else {"metrics.jsonl", "checkpoints"} <= inside.keys():
            yield here
            continue
        below = [name for name in sorted(inside) if not name.startswith(".") and _is_folder(inside[name])]
        waiting += [here / name for name in reversed(below)]


def describe_run(path: Path, name: str) -> dict[str, Any]:
    """Describe a run for the list; one that cannot be read has the status "unreadable" and the reason."""
    row: dict[str, Any] = {"name": name, "path": str(path)}
    try:
        run = read_run(path)
    except (UserError, OSError) as error:
        return row | {"status": "unreadable", "reason": " ".join(str(error).split())}
    chosen = run.chosen
    return row | {
        "method": chosen.method,
        "data": run.data,
        "tested_on": tested_on(run),
        "tau_alpha": chosen.get("tau_alpha"),
        "tau_beta": chosen.in_effect("tau_beta"),
        "seed": chosen.seed,
        "group": hashlib.blake2b(group_key(run).encode(), digest_size=4).hexdigest(),
        "status": run.status.word,
        "reason": run.status.reason,
        "epoch": run.epoch,
        "epochs": chosen.epochs,
        **{name: each.last(run) for name, each in ACCURACIES.items()},
        **_forecast(path),
        "date": run.moved.isoformat(timespec="seconds"),
    }


def _forecast(path: Path) -> dict[str, Any]:
    """What the label-free judge said of a run at last, if it was asked: kNN in %, its interval and the step."""
    judged = read_judged(path)
    if not judged:
        return {"forecast": None}
    step = max(judged)
    found = forecast(judged[step]["measures"])
    limits = {"forecast_low": found.low, "forecast_high": found.high, "forecast_step": step}
    return {"forecast": found.knn, **limits, "forecast_score": found.score}


def better_by_forecast(rows: Sequence[dict[str, Any]]) -> list[str]:
    """For runs on the same images that were judged without labels, a line about which to take, and how sure."""
    lines, sets = [], {}
    for row in rows:
        if row.get("forecast") is not None:
            sets.setdefault(row["tested_on"], []).append(row)
    for some in sets.values():
        if len(some) < 2:
            continue
        first, second = sorted(some, key=lambda row: -row["forecast_score"])[:2]
        one, other = (Forecast(*(r[f"forecast{x}"] for x in ("", "_low", "_high", "_score"))) for r in (first, second))
        chance = chance_better(one, other)
        sure = "" if chance >= SURE else ", which is not sure"
        lines.append(
            f"without labels, of {len(some)} judged runs on {first['data']}: {first['name']}, better than "
            f"{second['name']} with chance {chance:.0%}{sure}"
        )
    return lines


def runs_below(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Describe all runs at or below these folders, each once; a missing folder is a UserError."""
    rows: dict[Path, dict[str, Any]] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(
                f"{folder} is not a folder: give one that contains runs, such as `dualtemp runs results/runs`"
            )
        for path in find_runs(folder):
            # Named as one would type it; below a single folder its relative path is enough.
            inside = path.relative_to(folder)
            name = str(inside) if len(folders) == 1 and inside.parts else str(path)
            rows.setdefault(path.resolve(), describe_run(path, name))
    return list(rows.values())


def sort_runs(rows: Sequence[dict[str, Any]], by: str, backwards: bool = False) -> list[dict[str, Any]]:
    """Sort rows by one of ORDERS: accuracies, epochs and dates in descending order; rows without a value come last."""
    there = [row for row in rows if row.get(by) is not None]
    kind = {True: 1, False: 0}
    there.sort(key=lambda row: (kind[isinstance(row[by], str)], row[by]), reverse=ORDERS[by] != backwards)
    return there + [row for row in rows if row.get(by) is None]


def print_runs(rows: Sequence[dict[str, Any]], as_json: bool = False) -> None:
    """Print a table followed by the reasons why runs failed or cannot be read; or JSON."""
    if as_json:
        print(json.dumps([_plain(row) for row in rows], indent=2))
        return
    # Piped into another program, a run is one line, however long.
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 10_000)
    table = Table(box=None, header_style="bold", pad_edge=False)
    accuracies = [each.column for each in ACCURACIES.values()]
    judged = ["forecast"] if any(row.get("forecast") is not None for row in rows) else []
    titles = ("run", "method", "data", "tau_alpha", "tau_beta", "seed", "status", "epoch", *accuracies, *judged, "date")
    for title in titles:
        right = title in ("tau_alpha", "tau_beta", "seed", "epoch", *accuracies, *judged)
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "run", overflow="fold")
    for row in rows:
        status = row["status"]
        cells = [
            escape(row["name"]),
            row.get("method", ""),
            escape(row.get("data", "")),
            _number(row.get("tau_alpha"), "{:g}"),
            _number(row.get("tau_beta"), "{:g}"),
            _number(row.get("seed"), "{}"),
            f"[{COLORS[status]}]{status}[/]",
            f"{row['epoch']}/{row['epochs']}" if "epoch" in row else "",
            *(_number(row.get(name), "{:.2f}") for name in ACCURACIES),
            *(_shown_forecast(row) for _ in judged),
            row.get("date", "")[:16].replace("T", " "),
        ]
        table.add_row(*cells)
    console.print(table)
    for line in better_by_forecast(rows):
        console.print(escape(line))
    for row in rows:
        if row["status"] in ("failed", "unreadable"):
            console.print(f"{escape(row['name'])} {row['status']}: {escape(row['reason'])}")


def print_groups(groups: Sequence[dict[str, Any]], as_json: bool = False) -> None:
    """Print a line per group of runs that differ in nothing but their seed, as `run_groups.group_rows` joins them."""
    if as_json:
        print(json.dumps([_plain(group) for group in groups], indent=2))
        return
    console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 10_000)
    table = Table(box=None, header_style="bold", pad_edge=False)
    accuracies = [each.column for each in ACCURACIES.values()]
    for title in ("runs", "method", "data", "tau_alpha", "tau_beta", "epochs", "done", *accuracies):
        right = title in ("tau_alpha", "tau_beta", "epochs", "done", *accuracies)
        table.add_column(title, justify="right" if right else "left", no_wrap=title != "runs", overflow="fold")
    for group in groups:
        cells = [
            escape(group["name"]),
            group.get("method", ""),
            escape(group.get("data", "")),
            _number(group.get("tau_alpha"), "{:g}"),
            _number(group.get("tau_beta"), "{:g}"),
            _number(group.get("epochs"), "{}"),
            f"{group['done']}/{group['runs']}",
            *(_with_half(group, name) for name in ACCURACIES),
        ]
        table.add_row(*cells)
    console.print(table)
    console.print("mean over finished runs with the same settings, \N{PLUS-MINUS SIGN} half of its 95 % interval")


def _with_half(group: dict[str, Any], name: str) -> str:
    half = group[f"{name}_half"]
    return _number(group[name], "{:.2f}") + ("" if half is None else f" \N{PLUS-MINUS SIGN} {half:.2f}")


def _shown_forecast(row: dict[str, Any]) -> str:
    if row.get("forecast") is None:
        return ""
    return f"{row['forecast']:.0f} ({row['forecast_low']:.0f} to {row['forecast_high']:.0f})"


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in circles
        return False


def _number(value: Any, form: str) -> str:
    return "" if value is None else value if isinstance(value, str) else form.format(value)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Write infinity, which JSON does not have, as a string."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
