"""Differences between the cells of a grid, seed by seed: effect, interval, paired t test. Pure; needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from dualtemp.grids.artifact import Artifact
from dualtemp.grids.comparisons import Table
from dualtemp.intervals import Interval, mean_interval, paired_differences
from dualtemp.t_distribution import incomplete_beta


@dataclass(frozen=True)
class Contrast:
    """Cell `first` minus cell `second` of one row or column, over the seeds that both have.

    interval: of the mean difference; p: of the paired t test; p_of_all: p adjusted for all contrasts of the grid
    (Holm); both None if there is no interval.
    """

    where: str
    first: str
    second: str
    seeds: int
    interval: Interval
    p: float | None = None
    p_of_all: float | None = None

    def is_clear(self, confidence: float) -> bool:
        """Whether the difference is clear among all contrasts of the grid."""
        return self.p_of_all is not None and self.p_of_all < 1 - confidence


def contrast_cells(artifact: Artifact, table: Table, confidence: float) -> list[Contrast]:
    """Contrast every row with the first within each column, and every column with the first within each row."""
    rows, columns = list(artifact.rows), list(artifact.columns)
    pairs = [(c, (r, c), (rows[0], c), r, rows[0]) for c in columns for r in rows[1:]]
    pairs += [(r, (r, c), (r, columns[0]), c, columns[0]) for r in rows for c in columns[1:]]
    found = []
    for where, one, other, first, second in pairs:
        a, b = table[one], table[other]
        if a.run == b.run or a.undecidable or b.undecidable:
            continue
        differences = paired_differences(a.values, b.values)
        if differences:
            interval = mean_interval(list(differences.values()), confidence)
            p = paired_p(a.values, b.values)
            found.append(Contrast(where, first, second, len(differences), interval, p))
    return adjust(found)


def paired_p(a: dict[int, float], b: dict[int, float]) -> float | None:
    """Return the two-sided p of the paired t test over common seeds; None for one seed, or equal differences."""
    differences = list(paired_differences(a, b).values())
    if len(differences) < 2 or not (spread := variance(differences)):
        return None
    df = len(differences) - 1
    squared_t = fmean(differences) ** 2 / (spread / len(differences))
    return incomplete_beta(df / 2, 0.5, df / (df + squared_t))


def adjust(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Fill in p for all contrasts together, by Holm's method; the order stays."""
    ranked = sorted((c.p, number) for number, c in enumerate(contrasts) if c.p is not None)
    adjusted, highest = list(contrasts), 0.0
    for rank, (p, number) in enumerate(ranked):
        highest = max(highest, min(1.0, (len(ranked) - rank) * p))
        adjusted[number] = replace(contrasts[number], p_of_all=highest)
    return adjusted
