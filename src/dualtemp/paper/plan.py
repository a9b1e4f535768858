"""Plan the runs for tables and figures of the paper at a scale. Needs no torch."""

import json
from dataclasses import dataclass
from typing import Any

from dualtemp.grids.artifact import Artifact, Cell
from dualtemp.grids.data_choice import DataChoice
from dualtemp.grids.plan import Plan, PlannedCell, PlannedRun, run_id
from dualtemp.paper.artifact import artifacts
from dualtemp.paper.scale import NotAtThisScale, Scale, scale_arguments, scale_settings


@dataclass(frozen=True)
class PaperPlan(Plan):
    """A plan at a scale."""

    scale: Scale
    data: DataChoice


def plan(chosen: list[Artifact], scale: Scale, data: DataChoice = DataChoice()) -> PaperPlan:  # noqa: B008  frozen
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
    return PaperPlan(tuple(chosen), cells, runs, scale, data)


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
