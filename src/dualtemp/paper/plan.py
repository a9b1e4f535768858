"""What is to be run: cells of the chosen artefacts, and the runs behind them, each once. Needs no torch."""

import json
from dataclasses import dataclass, field
from typing import Any

from dualtemp.config import OF_METHOD, Settings, settings
from dualtemp.paper.artefact import Artefact, Cell, artefacts
from dualtemp.paper.scale import DataChoice, NotAtThisScale, Scale, asked_at, scaled


@dataclass(frozen=True)
class PlannedCell:
    """A cell at a scale: the word that stands for its run, or why it is not there."""

    cell: Cell
    run: str | None
    asked: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    absent: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """Settings without the seed; `measured` are the measurements that any artefact of the paper wants of this run."""

    word: str
    settings: dict[str, Any]
    measured: tuple[tuple[str, str], ...]  # name of a measurement, its arguments as JSON

    def with_seed(self, seed: int) -> Settings:
        """The complete settings of one run."""
        return settings({**self.settings, "seed": seed})


@dataclass(frozen=True)
class Plan:
    """Cells of the chosen artefacts, and the runs that they need."""

    scale: Scale
    artefacts: tuple[Artefact, ...]
    cells: dict[str, dict[tuple[str, str], PlannedCell]]
    runs: dict[str, PlannedRun]
    data: DataChoice = field(default_factory=DataChoice)


def plan(chosen: list[Artefact], scale: Scale, data: DataChoice = DataChoice()) -> Plan:  # noqa: B008  frozen
    """The cells of artefacts at a scale. Equal cells, of whatever table, are one run."""
    cells = {
        artefact.id: {(cell.row, cell.column): _planned(artefact, cell, scale, data) for cell in artefact.cells}
        for artefact in chosen
    }
    measured = _measured(scale, data)
    runs: dict[str, PlannedRun] = {}
    for found in (cell for table in cells.values() for cell in table.values()):
        if found.run is not None and found.run not in runs:
            runs[found.run] = PlannedRun(found.run, found.settings, measured.get(found.run, ()))
    return Plan(scale, tuple(chosen), cells, runs, data)


def run_word(values: dict[str, Any]) -> str:
    """Settings as one canonical word: equal for settings that compute the same, whatever was left to defaults."""
    chosen = settings(values).model_dump(exclude={"seed"})
    return json.dumps(canonical(chosen), sort_keys=True)


def canonical(chosen: dict[str, Any]) -> dict[str, Any]:
    """Settings with the framework's defaults filled in, and "tied" as a number."""
    for name, default in OF_METHOD[chosen["method"]].items():
        if chosen.get(name) is None:
            chosen[name] = default
    if chosen.get("tau_beta") == "tied":
        chosen["tau_beta"] = chosen["tau_alpha"]
    if chosen.get("label_noise") == 0:
        chosen["noise"] = "symmetric"  # of no labels
    return {name: float(value) if name.startswith("tau") and value else value for name, value in chosen.items()}


def _planned(artefact: Artefact, cell: Cell, scale: Scale, data: DataChoice) -> PlannedCell:
    values = scaled(artefact, cell, scale, data)
    if isinstance(values, NotAtThisScale):
        return PlannedCell(cell, None, {}, absent=values.reason)
    return PlannedCell(cell, run_word(values), asked_at(cell, scale), values)


def _measured(scale: Scale, data: DataChoice) -> dict[str, tuple[tuple[str, str], ...]]:
    """All measurements by the run that they are made on: a run is measured when it ends, for whichever figure."""
    found: dict[str, dict[str, dict[str, set[Any]]]] = {}
    for artefact in artefacts().values():
        if artefact.measure is None:
            continue
        for cell in artefact.cells:
            planned = _planned(artefact, cell, scale, data)
            if planned.run is None:
                continue
            arguments = found.setdefault(planned.run, {}).setdefault(artefact.measure["name"], {})
            for name, value in planned.asked.items():
                arguments.setdefault(f"{name}s", set()).add(value)
            if "taus" in artefact.measure:
                arguments.setdefault("taus", set()).update(artefact.measure["taus"])
    return {
        run: tuple(
            (name, json.dumps({key: sorted(values) for key, values in sorted(arguments.items())}))
            for name, arguments in sorted(wanted.items())
        )
        for run, wanted in found.items()
    }
