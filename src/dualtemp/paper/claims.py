"""Whether measured cells show what the paper claims: pure functions, declared in claims.yaml. Needs no torch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from dualtemp.paper.artefact import Artefact, artefacts, read_yaml
from dualtemp.paper.intervals import Interval, difference, paired_difference, pooled_variance, variance_beside_seeds

HOLDS, FAILS, UNDECIDED, ABSENT = "holds", "does not hold", "undecided", "not at this scale"


@dataclass(frozen=True)
class MeasuredCell:
    """What the runs of one cell gave.

    values: by seed; seeds whose run failed are in `failed`; collapsed: of how many the features collapsed;
    absent: why there is no such cell at this scale.
    """

    values: dict[int, float] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    collapsed: int = 0
    absent: str = ""


Table = dict[tuple[str, str], MeasuredCell]  # by row and column


@dataclass(frozen=True)
class Finding:
    """One comparison: what was compared, where, and what came out.

    interval: what decides; by_seed: the same difference within seeds, which is narrower where seeds matter, and decides
    nothing.
    """

    artefact: str
    where: str
    says: str
    verdict: str
    interval: Interval | None = None
    why: str = ""
    runs: int = 0
    by_seed: Interval | None = None


@dataclass(frozen=True)
class Verdict:
    """A claim, with what it rests on."""

    claim: str
    says: str
    verdict: str
    findings: tuple[Finding, ...]

    @property
    def why(self) -> str:
        """In a few words, what decides, or what is missing."""
        counts = [f"{sum(f.verdict == v for f in self.findings)} {v}" for v in (HOLDS, FAILS, UNDECIDED, ABSENT)]
        return ", ".join(count for count in counts if not count.startswith("0 ")) or "nothing to compare"


def judged(tables: dict[str, Table]) -> list[Verdict]:
    """The verdict on every claim, from tables by artefact; artefacts that are not given count as not run."""
    rules = read_yaml("claims.yaml")
    margin, confidence = rules["margin"], rules["confidence"]
    return [
        verdict(
            name,
            claim["says"],
            [
                finding
                for comparison in claim["shown_by"]
                for finding in compared(comparison, tables, margin, confidence)
            ],
        )
        for name, claim in rules["claims"].items()
    ]


def verdict(name: str, says: str, findings: list[Finding]) -> Verdict:
    """It holds if all comparisons do, and does not if one does not; those that are not at this scale are left out."""
    found = {finding.verdict for finding in findings} - {ABSENT}
    if not found:
        return Verdict(name, says, ABSENT if findings else UNDECIDED, tuple(findings))
    decided = FAILS if FAILS in found else UNDECIDED if UNDECIDED in found else HOLDS
    return Verdict(name, says, decided, tuple(findings))


def compared(comparison: dict[str, Any], tables: dict[str, Table], margin: float, confidence: float) -> list[Finding]:
    """All findings of one line of claims.yaml."""
    kind = next(kind for kind in RULES if kind in comparison)
    names, findings = comparison[kind], []
    for id in [comparison["in"]] if isinstance(comparison["in"], str) else comparison["in"]:
        artefact, table = artefacts()[id], tables.get(id, {})
        for place in _places(comparison, artefact):
            cells = {name: table.get(_address(comparison, place, name), MeasuredCell()) for name in names}
            findings += RULES[kind](Comparison(id, place, cells, table, margin, confidence))
    return findings


@dataclass(frozen=True)
class Comparison:
    """Cells of one row or column, the table that they are from, and how strict to be."""

    artefact: str
    place: str
    cells: dict[str, MeasuredCell]
    table: Table
    margin: float
    confidence: float

    def finding(self, first: str, second: str, sign: str, decide: Callable[[Interval], str]) -> Finding:
        """Compare two cells by the interval of their difference, first minus second."""
        a, b = self.cells[first], self.cells[second]
        what = f"{first} {sign} {second}"
        if a.absent or b.absent:
            return Finding(self.artefact, self.place, what, ABSENT, why=a.absent or b.absent)
        runs = len(a.values) + len(b.values)
        for name, cell in ((first, a), (second, b)):
            if not cell.values:
                why = f"{name}: " + (f"failed ({next(iter(cell.failed.values()))})" if cell.failed else "not run")
                return Finding(self.artefact, self.place, what, UNDECIDED, why=why, runs=runs)
        # A collapsed cell sits at chance and hardly varies: it says nothing of the others' noise.
        sound = [cell.values for cell in self.table.values() if not cell.collapsed]
        variance = pooled_variance(list(values.values()) for values in sound)
        interval = difference(list(a.values.values()), list(b.values.values()), variance, self.confidence)
        if interval.low is None:
            return Finding(self.artefact, self.place, what, UNDECIDED, interval, interval.why, runs)
        failed = len(a.failed) + len(b.failed)
        why = f"{failed} failed runs left out" if failed else ""
        by_seed = paired_difference(a.values, b.values, self.confidence, variance_beside_seeds(sound))
        return Finding(self.artefact, self.place, what, decide(interval), interval, why, runs, by_seed)


def above(limit: float) -> Callable[[Interval], str]:
    """Holds if the interval lies above a limit, fails if it lies below it."""
    return lambda i: HOLDS if i.bounds[0] > limit else FAILS if i.bounds[1] < limit else UNDECIDED


def within(margin: float) -> Callable[[Interval], str]:
    """Holds if the interval lies within the margin, fails if it lies outside of it."""

    def decide(i: Interval) -> str:
        low, high = i.bounds
        return HOLDS if -margin < low and high < margin else FAILS if low > margin or high < -margin else UNDECIDED

    return decide


def _beats(c: Comparison) -> list[Finding]:
    first, second = c.cells
    return [c.finding(first, second, ">", above(0.0))]


def _far(c: Comparison) -> list[Finding]:
    first, second = c.cells
    return [c.finding(first, second, ">>", above(c.margin))]


def _at_least(c: Comparison) -> list[Finding]:
    first, second = c.cells
    return [c.finding(first, second, ">=", above(-c.margin))]


def _not_above(c: Comparison) -> list[Finding]:
    first, second = c.cells
    margin = c.margin

    def decide(i: Interval) -> str:
        low, high = i.bounds
        return HOLDS if high < margin else FAILS if low > margin else UNDECIDED

    return [c.finding(first, second, "not >", decide)]


def _flat(c: Comparison) -> list[Finding]:
    names = list(c.cells)
    pairs = ((a, b) for i, a in enumerate(names) for b in names[i + 1 :])
    return [c.finding(a, b, "=", within(c.margin)) for a, b in pairs]


def _rises(c: Comparison) -> list[Finding]:
    """The last above the first, and no step shown to fall; the cells are of the same runs, so seed by seed."""
    present = [name for name, cell in c.cells.items() if not cell.absent]
    if len(present) < 2:
        return [Finding(c.artefact, c.place, "rises", ABSENT, why="fewer than two sizes at this scale")]
    what = f"rises from {present[0]} to {present[-1]}"
    for name in present:
        if not c.cells[name].values:
            failed = c.cells[name].failed
            why = f"{name}: " + (f"failed ({next(iter(failed.values()))})" if failed else "not run")
            return [Finding(c.artefact, c.place, what, UNDECIDED, why=why)]

    def step(low: str, high: str) -> Interval:
        return paired_difference(c.cells[high].values, c.cells[low].values, c.confidence)

    whole, runs = step(present[0], present[-1]), len(c.cells[present[0]].values)
    if whole.low is None:
        return [Finding(c.artefact, c.place, what, UNDECIDED, whole, whole.why, runs)]
    falls = [f"{a} to {b}" for a, b in pairwise(present) if (i := step(a, b)).low is not None and i.bounds[1] < 0]
    if falls:
        return [Finding(c.artefact, c.place, what, FAILS, whole, f"falls from {', '.join(falls)}", runs)]
    return [Finding(c.artefact, c.place, what, above(0.0)(whole), whole, "", runs)]


RULES: dict[str, Callable[[Comparison], list[Finding]]] = {
    "beats": _beats,
    "far": _far,
    "at_least": _at_least,
    "not_above": _not_above,
    "flat": _flat,
    "rises": _rises,
}


def _places(comparison: dict[str, Any], artefact: Artefact) -> Iterable[str]:
    """The rows or columns in which a comparison is made."""
    names = artefact.rows if comparison["each"] == "row" else artefact.columns
    chosen = comparison.get("of", list(names))
    return [name for name in chosen if name not in comparison.get("except", ())]


def _address(comparison: dict[str, Any], place: str, name: str) -> tuple[str, str]:
    return (place, name) if comparison["each"] == "row" else (name, place)
