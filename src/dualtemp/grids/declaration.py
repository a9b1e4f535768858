"""A user's own grid, declared in a YAML file with the words of the paper's artifacts. Needs no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dualtemp.data.sources.catalogue import looks_like_path, named_set
from dualtemp.errors import UserError
from dualtemp.grids.artifact import Artifact
from dualtemp.grids.claims import Rules, places_of
from dualtemp.grids.comparisons import RULES
from dualtemp.grids.data_choice import DataChoice
from dualtemp.grids.missing import MOST_SEEDS
from dualtemp.grids.plan import Plan, PlannedCell, PlannedRun, run_id
from dualtemp.runs.metrics import accuracies, measures
from dualtemp.text import suggest
from dualtemp.yaml_file import read_yaml

EXPECTED = "a grid: YAML with rows and columns of settings, as docs/grids.md shows"
WHY = {
    "cells": "nothing else is assumed to vary alike",
    "row": "declared in the grid",
    "column": "declared in the grid",
    "table": "declared in the grid",
}
Part = dict[str, dict[str, Any]]


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic takes `margin: yes` for 1.0
        raise ValueError("a number is expected, got yes or no")
    return value


_Whole = Annotated[int, BeforeValidator(_refuse_bool)]
_Number = Annotated[float, BeforeValidator(_refuse_bool)]


class _Looks(BaseModel):
    """After how many seeds claims are looked at, and the confidence of each look."""

    model_config = ConfigDict(extra="forbid")

    seeds: list[Annotated[_Whole, Field(ge=2)]] = Field(min_length=1)
    level: _Number = Field(gt=0, lt=1)


class _File(BaseModel):
    """What a grid file may say; docs/grids.md explains each word."""

    model_config = ConfigDict(extra="forbid")

    title: str = ""
    note: str = ""
    data: str = ""
    fixed: dict[str, Any] = Field(default_factory=dict)
    rows: dict[str, Any] = Field(default_factory=dict)
    columns: dict[str, Any] = Field(default_factory=dict)
    row_title: str = ""
    column_title: str = ""
    seeds: Any = 3  # checked by _seeds
    metric: str = ""
    variance: Literal["cells", "row", "column", "table"] = "cells"
    margin: _Number = Field(default=1.0, gt=0)
    confidence: _Number = Field(default=0.95, gt=0, lt=1)
    looks: _Looks | None = None
    claims: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """A declared grid: its table, its claims, and the seeds of every cell ("3", or "1,4")."""

    path: Path
    artifact: Artifact
    rules: Rules
    seeds: str

    def make_plan(self, data: DataChoice = DataChoice()) -> Plan:  # noqa: B008  frozen
        """Plan the grid's cells; cells with equal settings share one run. A wrong setting is a UserError."""
        cells: dict[tuple[str, str], PlannedCell] = {}
        default = data.all or self.artifact.data
        words = [cell.settings.get("data", default) for cell in self.artifact.cells]
        data.refuse_unused(word for word in words if isinstance(word, str))
        for cell, word in zip(self.artifact.cells, words, strict=True):
            there = data.replacement(word) if isinstance(word, str) else None  # the settings refuse anything but text
            values = {**cell.settings, "data": there or _beside(self.path, word)}
            if not values["data"]:
                raise UserError(f"{self.path} names no data: write `data: FOLDER`, or give --data")
            try:
                cells[cell.row, cell.column] = PlannedCell(cell, run_id(values), {}, values)
            except UserError as error:
                where = ", ".join(filter(None, (cell.row, cell.column)))
                raise UserError(f"{self.path}, cell {where}: {error}") from None
        runs = {one.run: PlannedRun(one.run, one.settings, ()) for one in cells.values() if one.run is not None}
        return Plan((self.artifact,), {self.artifact.id: cells}, runs)


def load_grid(path: Path) -> Grid:
    """Read and check a grid file; loading it runs no code."""
    said = read_yaml(path, EXPECTED)
    if not isinstance(said, dict):
        raise UserError(f"{path} holds no grid: give {EXPECTED}")
    try:
        file = _File.model_validate({name: _with_words(path, name, part) for name, part in said.items()})
    except ValidationError as error:
        raise UserError(f"{path}: {_sentence(error)}") from None
    rows, row_title = _expand(path, "rows", file.rows)
    columns, column_title = _expand(path, "columns", file.columns)
    for where, named in {"fixed": file.fixed, **_places("rows", rows), **_places("columns", columns)}.items():
        _check_names(path, where, named)
    if not file.rows and not file.columns:
        raise UserError(f"{path} has neither rows nor columns: give {EXPECTED}")
    metric = file.metric or accuracies()[0].key
    if metric not in measures():
        raise UserError(f"{path}: no measure is called {metric!r}: {suggest(metric, measures())}")
    artifact = Artifact(
        id=path.stem,
        order=0,
        label=path.name,
        title=file.title or path.stem,
        claims=tuple(file.claims),
        data=file.data,
        row_title=file.row_title or row_title,
        column_title=file.column_title or column_title,
        fixed=file.fixed,
        rows=rows,
        columns=columns,
        metric=metric,
        note=file.note,
    )
    claims = {name: _claim(path, name, said, artifact) for name, said in file.claims.items()}
    pools = {artifact.id: {"over": file.variance, "why": WHY[file.variance]}}
    looks = {} if file.looks is None else {"": {"level": file.looks.level, "seeds": sorted(file.looks.seeds)}}
    rules = Rules({artifact.id: artifact}, claims, file.margin, file.confidence, looks, pools)
    return Grid(path, artifact, rules, _seeds(path, file.seeds))


def _expand(path: Path, part: str, said: dict[str, Any]) -> tuple[Part, str]:
    """Return rows or columns by name, and their title; `{tau_alpha: [.1, .2]}` stands for one per value."""
    if not said:
        return {"": {}}, ""
    if len(said) == 1 and isinstance(next(iter(said.values())), list):
        ((name, values),) = said.items()
        found = {_word(value): {name: value} for value in values}
        if not values or len(found) < len(values):
            raise UserError(f"{path}, {part}: {name} must be a list of different values, and at least one")
        return found, name
    for name, settings in said.items():
        if not isinstance(settings, dict):
            raise UserError(f"{path}, {part}: {name} must be settings, such as {{tau_alpha: 0.1}}, or a list of values")
    return said, ""


def _places(part: str, named: Part) -> Part:
    """Return the settings of rows or columns by the words of a message: "rows, a"."""
    return {f"{part}, {name}": settings for name, settings in named.items()}


def _check_names(path: Path, where: str, settings: dict[Any, Any]) -> None:
    """Raise UserError for names that cannot be settings, and for the seed: every cell has all seeds of the grid."""
    for name in settings:
        if not isinstance(name, str):
            raise UserError(f"{path}, {where}: {name!r} is not the name of a setting, such as tau_alpha")
        if name == "seed":
            raise UserError(f"{path}, {where}: every cell has the same seeds: write `seeds: [1, 2]` at the top instead")


def _claim(path: Path, name: str, said: Any, artifact: Artifact) -> dict[str, Any]:
    """Check a claim: what it says, and the comparisons that would show it."""
    lines = said.get("shown_by") if isinstance(said, dict) else None
    if not isinstance(lines, list) or not lines or not all(isinstance(line, dict) for line in lines):
        raise UserError(f"{path}, claim {name}: give `says`, and `shown_by`, a list of comparisons")
    lines = [dict(line) for line in lines]  # claims may share them, as YAML's aliases
    for line in lines:
        kinds = [kind for kind in RULES if kind in line]
        extra = set(line) - {*RULES, "each", "of", "except"}
        if len(kinds) != 1 or extra or line.get("each") not in ("row", "column"):
            raise UserError(
                f"{path}, claim {name}: a comparison is `each: row` or `each: column`, and one of {', '.join(RULES)}"
            )
        line["in"] = artifact.id
        compared = artifact.columns if line["each"] == "row" else artifact.rows
        if not any(compared):
            one, other = ("row", "columns") if line["each"] == "row" else ("column", "rows")
            raise UserError(f"{path}, claim {name}: `each: {one}` compares {other}, and the grid has none")
        names = line[kinds[0]] = [_word(one) for one in _list(line[kinds[0]])]
        places = {kind: [_word(one) for one in _list(line[kind])] for kind in ("of", "except") if kind in line}
        line.update(places)
        if len(names) < 2 or len(set(names)) < len(names):
            raise UserError(f"{path}, claim {name}: {kinds[0]} compares at least two cells, each named once")
        if kinds[0] not in ("flat", "rises") and len(names) > 2:
            raise UserError(f"{path}, claim {name}: {kinds[0]} compares two cells, the better one first")
        others = artifact.rows if line["each"] == "row" else artifact.columns
        if places and not any(others):
            raise UserError(f"{path}, claim {name}: the grid has no {line['each']}s: leave {' and '.join(places)} out")
        for known, words in ((compared, names), *((others, words) for words in places.values())):
            for word in words:
                if word not in known:
                    raise UserError(f"{path}, claim {name}: there is no {word!r}: {suggest(word, known)}")
        if not list(places_of(line, artifact)):
            raise UserError(f"{path}, claim {name}: nothing is left to compare")
    return {"says": str(said.get("says", name)), "shown_by": lines}


def _list(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [said]


def _with_words(path: Path, where: str, part: Any) -> Any:
    """Turn names of rows, columns and claims into text; YAML reads some as numbers, and `on` and `off` as booleans."""
    if not isinstance(part, dict):
        return part
    found = {_word(name): value for name, value in part.items()}
    if len(found) < len(part):
        twice = next(word for word in found if sum(_word(name) == word for name in part) > 1)
        raise UserError(f"{path}: {twice!r} is the name of two of its {where}: give each a name of its own")
    return found


def _seeds(path: Path, said: Any) -> str:
    """Check seeds, and return them in the words of --seeds."""
    listed, least = (said, 0) if isinstance(said, list) else ([said], 1)
    if not listed or not all(type(seed) is int and seed >= least for seed in listed):  # true is no number of seeds
        raise UserError(f"{path}, seeds: give how many (3), or which ([1, 2, 5])")
    if isinstance(said, list):
        return ",".join(map(str, said)) + ","
    if said > MOST_SEEDS:
        raise UserError(f"{path}, seeds: give at most {MOST_SEEDS:,}; the one seed {said} is [{said}]")
    return str(said)


def _beside(path: Path, data: Any) -> Any:
    """Resolve a relative path of data beside the grid file, unless it names a set or exists in the current folder."""
    if not isinstance(data, str) or not data:
        return data
    if not looks_like_path(data) and (entry := named_set(data)):
        return entry.name
    if Path(data).exists():
        return data
    return str(path.parent / data) if (path.parent / data).exists() else data


def _word(value: Any) -> str:
    """Write a value as YAML does: true, 0.1, 1; a number with as many digits as it needs to be distinct."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else str(value)
    return str(value)


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"a grid has no {name!r}: {suggest(name, list(_File.model_fields))}"
    if first["type"] == "model_type":
        return f"{name}: give seeds and level, such as {{seeds: [5, 10], level: 0.9706}}"
    said = first["msg"].removeprefix("Value error, ")
    return f"{name}: {said[0].lower()}{said[1:]}"
