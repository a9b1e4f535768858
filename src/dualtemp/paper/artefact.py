"""The tables and figures, as declared in artefacts/*.yaml. Needs no torch."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from dualtemp.errors import UserError
from dualtemp.text import similar_words

# In the order of the paper.
IDS = (
    "F-teaser",
    "F-dict",
    "T-vec-sampling",
    "F-entropy",
    "T-tau-beta",
    "T-reverse",
    "T-tau-alpha",
    "T-batch",
    "T-epochs",
    "T-arch",
    "T-data",
    "T-unified",
    "F-frameworks",
    "S-dict",
    "S-scalar-sampling",
    "S-similarity",
    "S-noise",
)
DATA = "cifar100"  # the paper's set, unless an artefact names its own


@dataclass(frozen=True)
class Cell:
    """One place of a table or one point of a figure.

    settings: of the run behind it, at the paper's scale; data is there only if the artefact varies it.
    asked: arguments of the measurement, for figures that look into a trained encoder.
    paper: the published value, if there is one.
    """

    artefact: str
    row: str
    column: str
    settings: dict[str, Any]
    asked: dict[str, Any]
    paper: float | None


@dataclass(frozen=True)
class Artefact:
    """A table or figure.

    fixed, rows, columns: settings; a row's value "$name" is filled in with the column's $name.
    measure: the measurement on a trained encoder whose outcome is drawn, none for accuracies.
    drawn: table, lines, teaser or frameworks.
    """

    id: str
    label: str
    title: str
    claims: tuple[str, ...] = ()
    drawn: str = "table"
    data: str = DATA
    row_title: str = ""
    column_title: str = ""
    fixed: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    paper: dict[str, list[float | None]] = field(default_factory=dict)
    measure: dict[str, Any] | None = None
    note: str = ""

    @property
    def digits(self) -> int:
        """Places to show: of points of accuracy, or of a measurement, whose effects are small."""
        return 2 if self.measure is None else 5

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, row by row."""
        return tuple(self.cell(row, column) for row in self.rows for column in self.columns)

    def cell(self, row: str, column: str) -> Cell:
        """The cell of a row and a column."""
        given = {**self.fixed, **self.columns[column], **self.rows[row]}
        variables = {name: value for name, value in given.items() if name.startswith("$")}
        settings = {
            name: variables.get(value, value) if isinstance(value, str) else value
            for name, value in given.items()
            if not name.startswith("$")
        }
        asked = {name[1:]: value for name, value in variables.items()} if self.measure else {}
        published = self.paper.get(row, [None] * len(self.columns))
        return Cell(self.id, row, column, settings, asked, published[list(self.columns).index(column)])


@cache
def artefacts() -> dict[str, Artefact]:
    """All artefacts by id, in the order of the paper."""
    return {name: _loaded(name) for name in IDS}


def chosen_artefacts(ids: Iterable[str]) -> list[Artefact]:
    """The artefacts that a user names; "all" names all."""
    known = artefacts()
    wanted = [name for word in ids for name in (known if word == "all" else (word,))]
    for name in wanted:
        if name not in known:
            near = similar_words(name, [*known, "all"])
            hint = f"did you mean {near[0]}?" if near else "`dualtemp paper` lists them"
            raise UserError(f"no table or figure is called {name!r}: {hint}")
    return [known[name] for name in dict.fromkeys(wanted)]


def read_yaml(name: str) -> Any:
    """A YAML file that lies in this package."""
    return yaml.safe_load(files("dualtemp.paper").joinpath(name).read_text(encoding="utf-8"))


def _loaded(name: str) -> Artefact:
    values = read_yaml(f"artefacts/{name}.yaml")
    return Artefact(**{**values, "claims": tuple(values.get("claims", ()))})
