"""Comparisons of two cells, or of the cells along a row: pure functions of measured values. Needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from dualtemp.intervals import (
    Interval,
    difference,
    paired_difference,
    pooled_variance,
    residual_variance,
)
from dualtemp.quantities import counted

HOLDS, FAILS, UNDECIDED, ABSENT = "holds", "does not hold", "undecided", "not at this scale"


@dataclass(frozen=True)
class MeasuredCell:
    """The results of a cell's runs.

    values: by seed; failed: reasons, by seed, of runs that failed; collapsed: seeds whose features collapsed; absent:
    why there is no such cell at this scale; run: the id of its runs, shared by cells with the same runs.
    """

    values: dict[int, float] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    collapsed: frozenset[int] = frozenset()
    absent: str = ""
    run: str = ""

    @property
    def seeds(self) -> list[int]:
        """Seeds that were run, sorted."""
        return sorted({*self.values, *self.failed})

    def up_to(self, count: int | None) -> "MeasuredCell":
        """Return the cell with its first `count` seeds only; None keeps all."""
        if count is None:
            return self
        seeds = set(self.seeds[:count])
        values = {seed: value for seed, value in self.values.items() if seed in seeds}
        failed = {seed: reason for seed, reason in self.failed.items() if seed in seeds}
        return MeasuredCell(values, failed, self.collapsed & seeds, self.absent, self.run)

    @property
    def undecidable(self) -> str:
        """Why this cell cannot be compared; "" if it can."""
        collapsed, there = len(self.collapsed & set(self.values)), len(self.values)
        if not self.values:
            return f"failed ({next(iter(self.failed.values()))})" if self.failed else "not run"
        if 0 < collapsed < there:  # two kinds of outcome, which no mean and no common variance describes
            return f"{collapsed} of {there} seeds collapsed"
        return ""


Table = dict[tuple[str, str], MeasuredCell]  # by row and column


@dataclass(frozen=True)
class Finding:
    """The outcome of one comparison.

    interval: decides whether the comparison holds. at_once: the wider interval that covers all comparisons of the claim
    together; needed to refute. by_seed: the same difference paired by seed; for information only. comparisons: how many
    this one counts for. reached: whether the cells have as many seeds as the look needs.
    """

    artifact: str
    where: str
    says: str
    verdict: str
    interval: Interval | None = None
    why: str = ""
    runs: int = 0
    by_seed: Interval | None = None
    at_once: Interval | None = None
    holds_at_once: bool = False
    comparisons: int = 1
    reached: bool = True

    @property
    def word(self) -> str:
        """The verdict; "holds, singly" if it does not hold at the interval that covers all comparisons together."""
        return "holds, singly" if self.verdict == HOLDS and not self.holds_at_once else self.verdict


@dataclass(frozen=True)
class Strictness:
    """How strictly to judge.

    margin: of equivalence; single: confidence of one comparison; at_once: confidence at which all comparisons of a
    claim are covered together; needed: seeds that a cell must have run.
    """

    margin: float
    single: float
    at_once: float
    needed: int = 0


@dataclass(frozen=True)
class Comparison:
    """Cells of one row or column, the values that share their variance, and how strictly to judge.

    less_is_better: whether lower values of the measure are better, as of a loss.
    """

    artifact: str
    place: str
    cells: dict[str, MeasuredCell]
    pool: list[dict[int, float]]
    strict: Strictness
    less_is_better: bool = False

    def undecidable(self, what: str, names: list[str], count: int = 1) -> Finding | None:
        """Return a finding with the reason why these cells cannot be compared; None if they can."""
        runs = sum(len(self.cells[name].values) for name in names)
        short = {
            name: len(self.cells[name].seeds) for name in names if len(self.cells[name].seeds) < self.strict.needed
        }
        reasons = {name: self.cells[name].undecidable for name in names if self.cells[name].undecidable}
        if not short and not reasons:
            return None
        reasons = reasons or {name: f"{seeds} of {self.strict.needed} seeds" for name, seeds in short.items()}
        why = next(f"{name}: {reason}" for name, reason in reasons.items())
        return Finding(
            self.artifact, self.place, what, UNDECIDED, why=why, runs=runs, comparisons=count, reached=not short
        )

    def finding(self, first: str, second: str, sign: str, decide: Callable[[Interval], str]) -> Finding:
        """Compare two cells by the interval of their difference, first minus second."""
        a, b = self.cells[first], self.cells[second]
        what = f"{first} {sign} {second}"
        if a.absent or b.absent:
            return Finding(self.artifact, self.place, what, ABSENT, why=a.absent or b.absent)
        runs = len(a.values) + len(b.values)
        if undecided := self.undecidable(what, [first, second]):
            return undecided
        variance = pooled_variance(list(values.values()) for values in self.pool)
        both = list(a.values.values()), list(b.values.values())
        single, together = (difference(*both, variance, c) for c in (self.strict.single, self.strict.at_once))
        if single.low is None:
            why = single.why if self.pool else "all seeds collapsed: no variance to judge by"
            return Finding(self.artifact, self.place, what, UNDECIDED, single, why, runs)
        failed = len(a.failed) + len(b.failed)
        why = f"{counted(failed, 'failed run')} left out" if failed else ""
        by_seed = paired_difference(a.values, b.values, self.strict.single, residual_variance(self.pool))
        verdict, at_once = reach_verdict(decide, single, together)
        return Finding(self.artifact, self.place, what, verdict, single, why, runs, by_seed, together, at_once)


def reach_verdict(decide: Callable[[Interval], str], single: Interval, together: Interval) -> tuple[str, bool]:
    """Return the verdict, and whether it also holds by the interval that covers all comparisons of the claim together.

    A claim holds only if all its comparisons do, so many comparisons do not make a false claim hold more often: the
    single interval is enough. A single comparison refutes a claim, and with many comparisons one does so by chance more
    often: a refutation needs the interval that covers all of them together.
    """
    if decide(single) == HOLDS:
        return HOLDS, decide(together) == HOLDS
    return (FAILS if decide(together) == FAILS else UNDECIDED), False


def above(limit: float) -> Callable[[Interval], str]:
    """Make a rule that holds if the interval is above the limit, and fails if it is below."""
    return lambda i: HOLDS if i.bounds[0] > limit else FAILS if i.bounds[1] < limit else UNDECIDED


def below(limit: float) -> Callable[[Interval], str]:
    """Make a rule that holds if the interval is below the limit, and fails if it is above."""
    return lambda i: HOLDS if i.bounds[1] < limit else FAILS if i.bounds[0] > limit else UNDECIDED


def within(margin: float) -> Callable[[Interval], str]:
    """Make a rule that holds if the interval is within the margin, and fails if it is entirely outside."""

    def decide(i: Interval) -> str:
        low, high = i.bounds
        return HOLDS if -margin < low and high < margin else FAILS if low > margin or high < -margin else UNDECIDED

    return decide


def _of_two(sign: str, decide: Callable[[float], Callable[[Interval], str]]) -> Callable[[Comparison], list[Finding]]:
    """Make a rule that compares the first cell with the second; `decide` takes the margin."""

    def findings(c: Comparison) -> list[Finding]:
        first, second = c.cells
        rule = decide(c.strict.margin)
        if c.less_is_better:
            return [c.finding(first, second, sign.replace(">", "<"), lambda interval: rule(interval.mirrored()))]
        return [c.finding(first, second, sign, rule)]

    return findings


def _flat(c: Comparison) -> list[Finding]:
    names = list(c.cells)
    pairs = ((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    return [c.finding(a, b, "=", within(c.strict.margin)) for a, b in pairs]


def _rises(c: Comparison) -> list[Finding]:
    """Hold if the last is above the first and no step clearly falls; paired by seed, since all are of the same runs."""
    present = [name for name, cell in c.cells.items() if not cell.absent]
    if len(present) < 2:
        return [Finding(c.artifact, c.place, "rises", ABSENT, why="fewer than two sizes at this scale")]
    what, count = f"rises from {present[0]} to {present[-1]}", len(present)  # the whole, and every step
    if undecided := c.undecidable(what, present, count):
        return [undecided]

    def step(low: str, high: str, confidence: float) -> Interval:
        return paired_difference(c.cells[high].values, c.cells[low].values, confidence)

    ends = present[0], present[-1]
    runs = sum(len(values) for values in {c.cells[name].run or name: c.cells[name].values for name in present}.values())
    single, together = (step(*ends, confidence) for confidence in (c.strict.single, c.strict.at_once))
    if single.low is None:
        return [Finding(c.artifact, c.place, what, UNDECIDED, single, single.why, runs, comparisons=count)]
    steps = {f"{a} to {b}": step(a, b, c.strict.at_once) for a, b in pairwise(present)}
    falls = [name for name, interval in steps.items() if interval.low is not None and interval.bounds[1] < 0]
    verdict, at_once = (FAILS, False) if falls else reach_verdict(above(0.0), single, together)
    why = f"falls from {', '.join(falls)}" if falls else ""
    return [Finding(c.artifact, c.place, what, verdict, single, why, runs, None, together, at_once, count)]


RULES: dict[str, Callable[[Comparison], list[Finding]]] = {
    "beats": _of_two(">", lambda margin: above(0.0)),
    "far": _of_two(">>", above),
    "at_least": _of_two(">=", lambda margin: above(-margin)),
    "not_above": _of_two("not >", below),
    "flat": _flat,
    "rises": _rises,
}
