"""What to run: the cells of the selected artifacts, and the runs behind them, each once. Needs no torch."""

import json
from dataclasses import dataclass, field
from typing import Any

from dualtemp.config import Settings, settings
from dualtemp.paper.artifact import Artifact, Cell, artifacts
from dualtemp.paper.scale import DataChoice, NotAtThisScale, Scale, scale_arguments, scale_settings


@dataclass(frozen=True)
class PlannedCell:
    """A cell at a scale: the id of its run, or why it is not at this scale."""

    cell: Cell
    run: str | None
    arguments: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    absent: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """A run without its seed; measured: all measurements that any artifact of the paper needs of it."""

    id: str
    settings: dict[str, Any]
    measured: tuple[tuple[str, str], ...]  # name of a measurement, its arguments as JSON

    def with_seed(self, seed: int) -> Settings:
        """Return the settings of the run with this seed."""
        return settings({**self.settings, "seed": seed})


@dataclass(frozen=True)
class Plan:
    """Cells of the selected artifacts, and the runs that they need."""

    scale: Scale
    artifacts: tuple[Artifact, ...]
    cells: dict[str, dict[tuple[str, str], PlannedCell]]
    runs: dict[str, PlannedRun]
    data: DataChoice = field(default_factory=DataChoice)


def plan(chosen: list[Artifact], scale: Scale, data: DataChoice = DataChoice()) -> Plan:  # noqa: B008  frozen
    """Plan the cells of artifacts at a scale. Equal cells, whatever their tables, share one run."""
    cells = {
        artifact.id: {(cell.row, cell.column): _planned(artifact, cell, scale, data) for cell in artifact.cells}
        for artifact in chosen
    }
    measured = _measured(scale, data)
    runs: dict[str, PlannedRun] = {}
    for found in (cell for table in cells.values() for cell in table.values()):
        if found.run is not None and found.run not in runs:
            runs[found.run] = PlannedRun(found.run, found.settings, measured.get(found.run, ()))
    return Plan(scale, tuple(chosen), cells, runs, data)


def run_id(values: dict[str, Any]) -> str:
    """Return an id that is equal for settings that compute the same, whether given or left to defaults."""
    return json.dumps(canonical(settings(values), exclude={"seed"}), sort_keys=True)


# Framework settings that every key contains, None where they do not apply. Never add to this list.
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
    """Fill in the framework's defaults and replace "tied" by its number: equal for runs that compute the same.

    Options that were added later are included only if they differ from their default, so that older keys stay valid.
    """
    options, fields = chosen.options, chosen.framework.Settings.model_fields
    own = {name: fields[name].default if name in options.without_effect() else v for name, v in options}
    if own.get("tau_beta") == "tied":
        own["tau_beta"] = own["tau_alpha"]
    others = {name: v for name, v in own.items() if name not in FIRST_OPTIONS and name not in exclude}
    later = {name: v for name, v in others.items() if v != fields[name].default}
    shared = {name: v for name, v in chosen.model_dump(exclude=exclude).items() if name in Settings.model_fields}
    values = {**shared, **{name: own.get(name) for name in FIRST_OPTIONS}, **later}
    return {name: float(value) if name.startswith("tau") and value else value for name, value in values.items()}


def _planned(artifact: Artifact, cell: Cell, scale: Scale, data: DataChoice) -> PlannedCell:
    values = scale_settings(artifact, cell, scale, data)
    if isinstance(values, NotAtThisScale):
        return PlannedCell(cell, None, {}, absent=values.reason)
    return PlannedCell(cell, run_id(values), scale_arguments(cell, scale), values)


def _measured(scale: Scale, data: DataChoice) -> dict[str, tuple[tuple[str, str], ...]]:
    """Collect all measurements by run id: a run is measured once, when it ends, for all figures."""
    found: dict[str, dict[str, dict[str, set[Any]]]] = {}
    for artifact in artifacts().values():
        if artifact.measure is None:
            continue
        for cell in artifact.cells:
            planned = _planned(artifact, cell, scale, data)
            if planned.run is None:
                continue
            arguments = found.setdefault(planned.run, {}).setdefault(artifact.measure["name"], {})
            for name, value in planned.arguments.items():
                arguments.setdefault(f"{name}s", set()).add(value)
            if "taus" in artifact.measure:
                arguments.setdefault("taus", set()).update(artifact.measure["taus"])
    return {
        run: tuple(
            (name, json.dumps({key: sorted(values) for key, values in sorted(arguments.items())}))
            for name, arguments in sorted(wanted.items())
        )
        for run, wanted in found.items()
    }
