"""Runs that differ in nothing but their seed, as one: mean and interval of each figure. Needs no torch."""

import json
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from dualtemp.intervals import Interval, mean_interval
from dualtemp.runs.record import RunRecord, part

CONFIDENCE = 0.95
SHARED = ("method", "data", "tau_alpha", "tau_beta", "epochs")  # by all runs of a group


def group_key(run: RunRecord) -> str:
    """Return a text that is equal for runs with the same settings, whatever their seed, on the same images.

    Where the seed draws the training images or wrong labels of them, the test images tell whether they are the same.
    """
    values = run.chosen.model_dump(mode="json", exclude={"seed", "data"})
    drawn = run.chosen.subset is not None or bool(run.chosen.get("label_noise"))
    images = part(run.environment, "test" if drawn else "train")
    return json.dumps([values, images.get("fingerprint") or images.get("names") or run.chosen.data], sort_keys=True)


def group_runs(runs: Sequence[RunRecord]) -> list[list[int]]:
    """Return the positions of the runs of each group, in the order in which groups first appear."""
    groups: dict[str, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(group_key(run), []).append(number)
    return list(groups.values())


def has_groups(runs: Sequence[RunRecord]) -> bool:
    """Whether some of these runs differ in nothing but their seed."""
    return any(len({runs[number].chosen.seed for number in group}) > 1 for group in group_runs(runs))


def seed_means(values: Iterable[tuple[int, float]]) -> list[float]:
    """Average (seed, value) of runs seed by seed: copies of a run and repeats of a seed are no further seeds."""
    found: dict[int, list[float]] = {}
    for seed, value in values:
        found.setdefault(seed, []).append(value)
    return [fmean(some) for some in found.values()]


def furthest_runs(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return the runs of a group that have come as far as any of them, or have stopped themselves."""
    furthest = max(run.epoch for run in runs)
    return [run for run in runs if run.epoch == furthest or (run.history and run.history[-1].get("stopped"))]


def describe_mean(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Describe a mean with half of its 95 % interval: 43.21 ± 0.40."""
    found = mean_interval(values, CONFIDENCE)
    half = "" if found.low is None else f" \N{PLUS-MINUS SIGN} {half_width(found):.2f}"
    return f"{form.format(found.effect)}{half}"


def half_width(interval: Interval) -> float:
    """Return half the width of an interval that exists."""
    low, high = interval.bounds
    return (high - low) / 2


def group_rows(rows: Sequence[dict[str, Any]], figures: Sequence[str]) -> list[dict[str, Any]]:
    """Join rows of the list of runs whose `group` is the same; a figure is the mean over the seeds of finished runs.

    `FIGURE_half` is half of the 95 % interval, None for one seed; runs that are not done are counted apart.
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row.get("group", row["path"]), []).append(row)
    return [_join(group, figures) for group in groups.values()]


def _join(group: list[dict[str, Any]], figures: Sequence[str]) -> dict[str, Any]:
    done = [row for row in group if row["status"] == "done"]
    shared = {name: group[0][name] for name in SHARED if name in group[0]}
    joined: dict[str, Any] = {
        "name": group[0]["name"] if len(group) == 1 else f"{group[0]['name']} and {len(group) - 1} more",
        "paths": [row["path"] for row in group],
        **shared,
        "seeds": sorted({row["seed"] for row in done}),
        "runs": len(group),
        "done": len(done),
    }
    for name in figures:
        values = seed_means((row["seed"], row[name]) for row in done if row.get(name) is not None)
        interval = mean_interval(values, CONFIDENCE) if values else None
        joined[name] = None if interval is None else interval.effect
        joined[f"{name}_half"] = None if interval is None or interval.low is None else half_width(interval)
    return joined
