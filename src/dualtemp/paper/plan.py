"""What is to be run: cells of the chosen artefacts, and the runs behind them, each once. Needs no torch."""

import json
from dataclasses import dataclass, field
from typing import Any

from dualtemp.config import Settings, settings
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
    return json.dumps(canonical(settings(values), exclude={"seed"}), sort_keys=True)


# Settings of frameworks that every key has held from the beginning, None where they do not apply. Never add to them.
FIRST_OPTIONS = [
    "tau_alpha",
    "tau_beta",
    "symmetric",
    "both_views",
    "hardness_aware",
    "tau_weight",
    "key_momentum",
    "keys",
    "dictionary_size",
    "vector_size",
    "vector_sampling",
    "scalar_size",
    "scalar_sampling",
    "label_noise",
    "noise",
]


def canonical(chosen: Settings, exclude: set[str] = frozenset()) -> dict[str, Any]:  # pyright: ignore
    """Settings with the framework's defaults filled in and "tied" as a number: equal for runs that compute the same.

    Options that came later stand in it only where they differ from their default, so that older keys stay.
    """
    options, fields = chosen.options, chosen.framework.Settings.model_fields
    own = {name: fields[name].default if name in options.without_effect() else v for name, v in options}
    if own.get("tau_beta") == "tied":
        own["tau_beta"] = own["tau_alpha"]
    later = {name: v for name, v in own.items() if name not in FIRST_OPTIONS and v != fields[name].default}
    shared = {name: v for name, v in chosen.model_dump(exclude=exclude).items() if name in Settings.model_fields}
    values = {**shared, **{name: own.get(name) for name in FIRST_OPTIONS}, **later}
    return {name: float(value) if name.startswith("tau") and value else value for name, value in values.items()}


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
