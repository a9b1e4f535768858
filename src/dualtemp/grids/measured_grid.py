"""A grid with its results: cells, contrasts and verdicts. Needs no torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dualtemp.grids.claims import Verdict, judge_claims
from dualtemp.grids.comparisons import MeasuredCell, Table
from dualtemp.grids.contrasts import Contrast, contrast_cells
from dualtemp.grids.declaration import Grid
from dualtemp.grids.plan import Plan
from dualtemp.grids.results import DataFacts, Results
from dualtemp.grids.tables import collect_results
from dualtemp.intervals import Interval, mean_interval
from dualtemp.runs.measure import Measure
from dualtemp.runs.metrics import measures


@dataclass(frozen=True)
class MeasuredGrid:
    """A grid's cells by row and column, with contrasts and verdicts.

    runs, wanted: number of results that exist, and of all; seconds: computing time of these; data: names of the images.
    """

    grid: Grid
    seeds: tuple[int, ...]
    table: Table
    contrasts: list[Contrast]
    verdicts: list[Verdict]
    runs: int
    wanted: int
    seconds: float
    data: str

    @property
    def measure(self) -> Measure:
        """The measure that the cells show."""
        return measures()[self.grid.artifact.metric]

    @property
    def confidence(self) -> float:
        """The confidence of every interval."""
        return self.grid.rules.confidence

    @property
    def digits(self) -> int:
        """Decimal places to show: two of a percentage, else enough for about five digits of the largest value."""
        largest = max((abs(value) for cell in self.table.values() for value in cell.values.values()), default=0.0)
        if self.measure.form.endswith("%") or largest == 0:
            return 2
        return min(6, max(2, 4 - math.floor(math.log10(largest))))

    def interval(self, cell: MeasuredCell) -> Interval | None:
        """Return the mean of a cell with its interval; None if it has no value."""
        return mean_interval(list(cell.values.values()), self.confidence) if cell.values else None


def measure_grid(
    grid: Grid, plan: Plan, seeds: Sequence[int], facts: Mapping[str, DataFacts], results: Results
) -> MeasuredGrid:
    """Collect the existing results, and compare them."""
    there = collect_results(plan, seeds, facts, results)
    table = there.tables[grid.artifact.id]
    found = {
        (there.keys[run], seed): result for run, by_seed in there.results.items() for seed, result in by_seed.items()
    }
    return MeasuredGrid(
        grid,
        tuple(seeds),
        table,
        contrast_cells(grid.artifact, table, grid.rules.confidence),
        judge_claims(grid.rules, {grid.artifact.id: table}),
        len(found),
        len({there.keys.get(run, run) for run in plan.runs}) * len(seeds),
        sum(result.get("seconds", 0.0) for result in found.values()),
        ", ".join(dict.fromkeys(there.data.values())),
    )


def describe_trouble(cell: MeasuredCell) -> str:
    """Describe failed and collapsed seeds of a cell; "" if there are none."""
    words = [f"{len(cell.failed)} failed"] if cell.failed else []
    if cell.collapsed:
        words.append("collapsed" if len(cell.collapsed) == len(cell.values) else f"{len(cell.collapsed)} collapsed")
    return ", ".join(words)
