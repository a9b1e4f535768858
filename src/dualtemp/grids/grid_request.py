"""A user's request for a grid of their own. Needs no torch unless images are opened."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualtemp.grids.data_choice import DataChoice
from dualtemp.grids.declaration import Grid, load_grid
from dualtemp.grids.listed_command import words_for_one_run
from dualtemp.grids.measured_grid import MeasuredGrid, measure_grid
from dualtemp.grids.missing import parse_seeds
from dualtemp.grids.plan import Plan
from dualtemp.grids.results import DataFacts, Job, Results


@dataclass(frozen=True)
class GridRequest:
    """A grid file with the flags given beside it."""

    grid: Grid
    seeds: tuple[int, ...]
    data: Sequence[str]
    results: Path

    @staticmethod
    def parse(file: Path, seeds: str | None, data: Sequence[str], results: Path | None) -> "GridRequest":
        """Load the file, which supplies everything that the flags leave open."""
        grid = load_grid(file)
        return GridRequest(grid, parse_seeds(seeds or grid.seeds), data, results or file.parent / "results")

    def make_plan(self) -> Plan:
        """Plan the grid's cells and runs."""
        return self.grid.make_plan(DataChoice.parse(list(self.data)))

    def measure(self, plan: Plan, facts: Mapping[str, DataFacts]) -> MeasuredGrid:
        """Collect and compare the existing results."""
        return measure_grid(self.grid, plan, self.seeds, facts, Results(self.results))

    def words(self) -> list[str]:
        """Return the words of the command that runs the whole grid."""
        seeds = ",".join(map(str, self.seeds)) + ("," if len(self.seeds) == 1 else "")
        data = [word for data in self.data for word in ("--data", data)]
        return ["dualtemp", "grid", str(self.grid.path), "--seeds", seeds, *data, "--results", str(self.results)]

    def command(self, job: Job, retry: bool = False) -> str:
        """Return the command that executes this run alone; retry: also if it has failed."""
        words = self.words()
        words[words.index("--seeds") + 1] = f"{job.settings.seed},"
        return shlex.join([*words, *words_for_one_run(job, retry)])
