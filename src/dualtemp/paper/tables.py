"""From results to tables: what each cell measured, seed by seed. Needs no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualtemp.paper.artefact import Artefact
from dualtemp.paper.comparisons import MeasuredCell, Table
from dualtemp.paper.known_data import shown_data
from dualtemp.paper.plan import Plan, PlannedCell
from dualtemp.paper.results import DataFacts, Job, Results, job


@dataclass(frozen=True)
class Collected:
    """The results of a plan: a table per artefact, the single results behind it, and what pages call the data."""

    tables: dict[str, Table]
    results: dict[str, dict[int, dict[str, Any]]]  # by the name of a planned run, by seed
    data: dict[str, str]  # by the word that the plan has for it


def jobs_of(plan: Plan, seeds: Sequence[int], facts: Mapping[str, DataFacts]) -> dict[tuple[str, int], Job]:
    """The jobs of a plan on data that is known, by run and seed: artefact after artefact, seed after seed."""
    found: dict[tuple[str, int], Job] = {}
    for table in plan.cells.values():
        for seed in seeds:
            for cell in table.values():
                run = plan.runs.get(cell.run or "")
                if run is not None and run.settings["data"] in facts and (run.word, seed) not in found:
                    found[run.word, seed] = job(run, seed, facts[run.settings["data"]])
    return found


def collected(plan: Plan, seeds: Sequence[int], facts: Mapping[str, DataFacts], results: Results) -> Collected:
    """All results of a plan that are there."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for (word, seed), one in jobs_of(plan, seeds, facts).items():
        result = results.read(one)
        if result is not None:
            found.setdefault(word, {})[seed] = result
    tables = {
        artefact.id: {place: _measured(artefact, cell, found) for place, cell in plan.cells[artefact.id].items()}
        for artefact in plan.artefacts
    }
    words = {run.settings["data"] for run in plan.runs.values()}
    return Collected(tables, found, {word: shown_data(word, facts.get(word), results) for word in words})


def _measured(artefact: Artefact, cell: PlannedCell, found: dict[str, dict[int, dict[str, Any]]]) -> MeasuredCell:
    if cell.run is None:
        return MeasuredCell(absent=cell.absent)
    values, failed, collapsed, short = {}, {}, set[int](), ""
    for seed, result in found.get(cell.run, {}).items():
        if result["status"] == "failed":
            failed[seed] = result["reason"]
            continue
        if result["status"] == "collapsed":
            collapsed.add(seed)
        value = _value(artefact, cell, result)
        if value is not None:
            values[seed] = value
        elif artefact.measure is None:
            failed[seed] = "the set has no labels to measure with"
        elif artefact.drawn == "lines":
            short = "the dictionary has not so many keys"
    return MeasuredCell(values, failed, frozenset(collapsed), "" if values else short, cell.run)


def _value(artefact: Artefact, cell: PlannedCell, result: dict[str, Any]) -> float | None:
    if artefact.measure is None:
        return result["metrics"].get("probe_top1")
    if artefact.drawn != "lines":
        return None
    curves = result["measured"][artefact.measure["name"]]["values"]
    return curves[f"{cell.asked['tau']:g}"][str(cell.asked["size"])]
