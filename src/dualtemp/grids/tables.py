"""Tables from results: the value of each cell, seed by seed. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualtemp.grids.artifact import Artifact
from dualtemp.grids.comparisons import MeasuredCell, Table
from dualtemp.grids.known_data import display_name
from dualtemp.grids.plan import Plan, PlannedCell
from dualtemp.grids.results import DataFacts, Job, Results, job_key, make_job
from dualtemp.runs.metrics import accuracies

NO_LABELS = "the set has no labels to measure with"


@dataclass(frozen=True)
class Collected:
    """The results of a plan: a table per artifact, the single results behind it, and display names of the data.

    keys: keys of results by the id of the planned run, if its data is known; equal for runs that are the same on it.
    """

    tables: dict[str, Table]
    results: dict[str, dict[int, dict[str, Any]]]  # by the id of a planned run, by seed
    data: dict[str, str]  # by the setting `data`
    keys: dict[str, str]


def make_jobs(plan: Plan, seeds: Sequence[int], facts: Mapping[str, DataFacts]) -> dict[tuple[str, int], Job]:
    """Make jobs, by run and seed, of the planned runs whose data is in `facts`; ordered by artifact, then by seed."""
    found: dict[tuple[str, int], Job] = {}
    for table in plan.cells.values():
        for seed in seeds:
            for cell in table.values():
                run = plan.runs.get(cell.run or "")
                if run is not None and run.settings["data"] in facts and (run.id, seed) not in found:
                    found[run.id, seed] = make_job(run, seed, facts[run.settings["data"]])
    return found


def collect_results(plan: Plan, seeds: Sequence[int], facts: Mapping[str, DataFacts], results: Results) -> Collected:
    """Collect all existing results of a plan."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    jobs = make_jobs(plan, seeds, facts)
    keys = {word: job_key(one) for (word, _), one in jobs.items()}
    for (word, seed), one in jobs.items():
        result = results.read(one)
        if result is not None:
            found.setdefault(word, {})[seed] = result
    tables = {
        artifact.id: {place: _measured(artifact, cell, found, keys) for place, cell in plan.cells[artifact.id].items()}
        for artifact in plan.artifacts
    }
    words = {run.settings["data"] for run in plan.runs.values()}
    return Collected(tables, found, {word: display_name(word, facts.get(word), results) for word in words}, keys)


def _measured(
    artifact: Artifact, cell: PlannedCell, found: dict[str, dict[int, dict[str, Any]]], keys: Mapping[str, str]
) -> MeasuredCell:
    """A cell with its values; keys: those of results by the id of a planned run, equal for runs that are the same."""
    if cell.run is None:
        return MeasuredCell(absent=cell.absent)
    values, failed, collapsed, short = {}, {}, set[int](), ""
    for seed, result in found.get(cell.run, {}).items():
        if result["status"] == "failed":
            failed[seed] = result["reason"]
            continue
        if result["status"] == "collapsed":
            collapsed.add(seed)
        value = _value(artifact, cell, result)
        if isinstance(value, int | float):  # infinity and nan are strings in results
            values[seed] = value
        elif artifact.measure is None:
            failed[seed] = _why_none(artifact, value)
        elif artifact.drawn == "lines":
            short = "the dictionary has fewer keys"
    return MeasuredCell(values, failed, frozenset(collapsed), "" if values else short, keys.get(cell.run, cell.run))


def _why_none(artifact: Artifact, value: str | None) -> str:
    if value is not None:
        return f"{artifact.metric or accuracies()[0].key} of its last epoch is {value}"
    return f"its last epoch has no {artifact.metric}" if artifact.metric else NO_LABELS


def _value(artifact: Artifact, cell: PlannedCell, result: dict[str, Any]) -> float | str | None:
    if artifact.measure is None:
        return result["metrics"].get(artifact.metric or accuracies()[0].key)
    if artifact.drawn != "lines":
        return None
    curves = result["measured"][artifact.measure["name"]]["values"]
    return curves[f"{cell.arguments['tau']:g}"][str(cell.arguments["size"])]
