"""A table or figure of runs, as a YAML file declares it. Needs no torch."""

from dataclasses import dataclass, field
from typing import Any

DATA = "cifar100"  # the paper's set, unless an artifact names its own


@dataclass(frozen=True)
class Cell:
    """One cell of a table, or one point of a figure.

    settings: of its run, at the paper's scale; includes `data` only if the artifact varies it.
    arguments: of the measurement, for figures that measure a trained encoder.
    paper: the published value, if there is one.
    """

    artifact: str
    row: str
    column: str
    settings: dict[str, Any]
    arguments: dict[str, Any]
    paper: float | None


@dataclass(frozen=True)
class Artifact:
    """A table or figure of the paper.

    order: artifacts are listed by ascending order, which is that of the paper.
    fixed, rows, columns: settings; a row's value "$name" is replaced by the column's $name.
    measure: the measurement on a trained encoder that the figure shows; None for a run's own metrics.
    metric: the key of the last epoch's metric that cells show; "": the accuracy of the online probe.
    drawn: table, lines, teaser or frameworks.
    """

    id: str
    order: int
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
    metric: str = ""
    note: str = ""

    @property
    def digits(self) -> int:
        """Decimal places to show: few for accuracies, more for measurements, whose effects are small."""
        return 2 if self.measure is None else 5

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, row by row."""
        return tuple(self.cell(row, column) for row in self.rows for column in self.columns)

    def cell(self, row: str, column: str) -> Cell:
        """Return the cell of a row and a column."""
        given = {**self.fixed, **self.columns[column], **self.rows[row]}
        variables = {name: value for name, value in given.items() if name.startswith("$")}
        settings = {
            name: variables.get(value, value) if isinstance(value, str) else value
            for name, value in given.items()
            if not name.startswith("$")
        }
        arguments = {name[1:]: value for name, value in variables.items()} if self.measure else {}
        published = self.paper.get(row, [None] * len(self.columns))
        return Cell(self.id, row, column, settings, arguments, published[list(self.columns).index(column)])
