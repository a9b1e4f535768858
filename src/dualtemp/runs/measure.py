"""The entry of a measure: its names, its meaning, its good direction, and where it is shown. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dualtemp.quantities import duration

if TYPE_CHECKING:
    from dualtemp.runs.record import RunRecord

DURATION = "duration"  # a form: seconds in words
# The groups of charts, in their order on a page.
GROUPS = {
    "learning": "Learning",
    "hardness": "Hardness: what the anchors weigh",
    "features": "Features",
    "other": "Other measures",
}


class Reference(NamedTuple):
    """A level to compare with, drawn across a chart: chance, collapse."""

    name: str
    value: float


class Terminal(NamedTuple):
    """A value in the terminal's line. Values are ordered by rank; a narrow terminal drops those from rank 2 on."""

    form: str
    rank: int


@dataclass(frozen=True)
class Measure:
    """A key of metrics.jsonl.

    Attributes:
        key: in metrics.jsonl, logs and CSV tables.
        title: on charts.
        says: what it means and which way is good, in a sentence or two.
        better: the good direction; "" if neither is.
        computed_by: the module that computes it.
        form: how a value is written: a format string, or DURATION.
        name: in tables; default: the title.
        terminal: how the terminal shows it after an epoch, if it does.
        alarm: what the terminal says if the value is true.
        tile: whether it is among the tiles at the top of the run page.
        group: of charts on run and compare pages, see GROUPS; "" draws none.
        chart: measures with the same chart share its axes; default: one of its own.
        compared: whether it is in the compare page's table and in CSV and LaTeX tables.
        rated: whether the best of comparable runs is marked; such measures come first in tables.
        column: its column in `dualtemp runs`, if it has one.
        card: its row in the model card, if it has one.
        evaluated_as: the name of the same measure of the finished encoder in `dualtemp evaluate`.
        top5: the key of its top-5 counterpart.
        of_start: the key of the same measure of the run's start.
        logged: whether TensorBoard and Weights & Biases get it.
        above_classes: shown only for data with more classes than this; top-5 of five classes is always right.
        reference: a level to compare a run's values with.
        remark: one more sentence, about this run.
        compute: a plugin's function, called at every evaluation.
    """

    key: str
    title: str
    says: str
    better: Literal["higher", "lower", ""]
    computed_by: str
    form: str = "{:.4g}"
    name: str = ""
    terminal: Terminal | None = None
    alarm: str = ""
    tile: bool = False
    group: str = ""
    chart: str = ""
    compared: bool = False
    rated: bool = False
    column: str = ""
    card: str = ""
    evaluated_as: str = ""
    top5: str = ""
    of_start: str = ""
    logged: bool = True
    above_classes: int = 0
    reference: Callable[[RunRecord], Reference | None] = lambda run: None
    remark: Callable[[RunRecord], str] = lambda run: ""
    compute: Callable[..., Any] | None = None

    def text(self, value: float) -> str:
        """Write a value."""
        return duration(value) if self.form == DURATION else self.form.format(value)

    def last(self, run: RunRecord) -> float | None:
        """The newest value in a run; None if it has none, or if it is meaningless.

        Measures by which runs are rated are those of the encoder that the run kept: an earlier one, or the start, if
        training made it worse.
        """
        if 0 < run.classes <= self.above_classes:
            return None
        if not self.rated:
            return run.last(self.key)
        kept = run.as_kept()
        return kept.last(self.key) if kept.history or not self.of_start else run.last(self.of_start)
