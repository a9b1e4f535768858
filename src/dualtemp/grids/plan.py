"""What to run: the cells of the selected artifacts, and the runs behind them, each once. Needs no torch."""

import json
from dataclasses import dataclass, field
from typing import Any

from dualtemp.config import Settings, settings
from dualtemp.grids.artifact import Artifact, Cell


@dataclass(frozen=True)
class PlannedCell:
    """A cell to fill: the id of its run, or why it has none (it does not exist at this scale)."""

    cell: Cell
    run: str | None
    arguments: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    absent: str = ""


@dataclass(frozen=True)
class PlannedRun:
    """A run without its seed; measured: all measurements that any artifact needs from it."""

    id: str
    settings: dict[str, Any]
    measured: tuple[tuple[str, str], ...]  # name of a measurement, its arguments as JSON

    def with_seed(self, seed: int) -> Settings:
        """Return the settings of the run with this seed."""
        return settings({**self.settings, "seed": seed})


@dataclass(frozen=True)
class Plan:
    """Cells of the selected artifacts, and the runs that they need."""

    artifacts: tuple[Artifact, ...]
    cells: dict[str, dict[tuple[str, str], PlannedCell]]
    runs: dict[str, PlannedRun]


def run_id(values: dict[str, Any]) -> str:
    """Return an id that is equal for settings that compute the same, whether set or left at defaults."""
    return json.dumps(canonical(settings(values), exclude={"seed"}), sort_keys=True)


# Framework settings that are part of every key, None where they do not apply. Never add to this list.
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
    numbers = {name: v for name, v in values.items() if name.startswith("tau") and v and isinstance(v, int | float)}
    return {**values, **{name: float(v) for name, v in numbers.items()}}
