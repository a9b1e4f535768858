"""Turn published settings into those of a scale, as declared in scales.yaml. Needs no torch."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from dualtemp.config import Settings, settings
from dualtemp.errors import UserError
from dualtemp.grids.artifact import Artifact, Cell
from dualtemp.grids.data_choice import DataChoice
from dualtemp.paper.artifact import read_yaml

PARTS = ("vector_size", "scalar_size")  # of the dictionary
SIZES = ("dictionary_size",)  # framework settings that a scale may change


@dataclass(frozen=True)
class Scale:
    """A declared set of overrides, see scales.yaml."""

    name: str
    about: str
    data: str | None = None
    stand_ins: dict[str, dict[str, str]] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)
    set: dict[str, Any] = field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = field(default_factory=dict)
    retired: str = ""

    def of_method(self, method: str) -> tuple[dict[str, str], dict[str, Any]]:
        """Return `times` and `set` of a framework."""
        own = self.methods.get(method)
        return (self.times, self.set) if own is None else (own.get("times", {}), own.get("set", {}))

    def with_settings(self, given: dict[str, Any]) -> "Scale":
        """Return the scale with these settings for every framework."""
        methods = {name: {**own, "set": {**own.get("set", {}), **given}} for name, own in self.methods.items()}
        return replace(self, set={**self.set, **given}, methods=methods)


@dataclass(frozen=True)
class NotAtThisScale:
    """Why a cell does not exist at a scale."""

    reason: str


def load_scale(name: str) -> Scale:
    """Load a scale by name."""
    known = read_yaml("scales.yaml")
    if name not in known:
        offered = [word for word, said in known.items() if "retired" not in said]
        raise UserError(f"there is no scale {name!r}: choose among {', '.join(offered)}")
    return Scale(name, **known[name])


def scale_settings(
    artifact: Artifact,
    cell: Cell,
    scale: Scale,
    data: DataChoice = DataChoice(),  # noqa: B008  frozen
) -> dict[str, Any] | NotAtThisScale:
    """Return the settings of a cell's run at a scale, without the seed; or why there is no such run."""
    values = {**_published(cell.settings), **cell.settings}
    varied = "data" in cell.settings
    values.setdefault("data", artifact.data if scale.data is None else scale.data)
    if data.all is not None and not varied:
        values["data"] = data.all
    for name, stand_ins in scale.stand_ins.items():
        if name == "data" and not varied:
            continue
        if values[name] not in stand_ins:
            return NotAtThisScale(f"{name} {values[name]} is not at this scale")
        values[name] = stand_ins[values[name]]
    values["data"] = data.replacement(values["data"]) or values["data"]

    times, fixed = scale.of_method(values["method"])
    for name, factor in times.items():
        if values.get(name) is not None:
            values[name] = scale_size(values[name], factor)
    values.update(fixed)
    for name in PARTS:  # drop a part as large as the whole, which is the default
        if values.get(name) is not None and values[name] == values.get("dictionary_size"):
            del values[name]
    return {name: value for name, value in values.items() if value is not None}


def scale_size(value: int, factor: str) -> int:
    """Multiply a whole number by a fraction such as "1/4" and round; at least 1."""
    return max(1, round(value * Fraction(factor)))


def scale_arguments(cell: Cell, scale: Scale) -> dict[str, Any]:
    """Return the arguments of a cell's measurement at a scale: sizes scale with the dictionary."""
    factor = scale.of_method(cell.settings.get("method", ""))[0].get("dictionary_size", "1")
    return {name: scale_size(value, str(factor)) if name == "size" else value for name, value in cell.arguments.items()}


def _published(given: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults that a scale may change: shared settings, and those of the framework that apply."""
    general = {name: Settings.model_fields[name].default for name in ("epochs", "batch", "backbone")}
    options = settings({"data": "", **given}).options
    idle = options.without_effect()
    return general | {name: value for name, value in options.model_dump().items() if name in SIZES and name not in idle}
