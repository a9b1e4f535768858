"""Whether measured cells show what the paper claims: pure functions, declared in claims.yaml. Needs no torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from dualtemp.paper.artefact import Artefact, artefacts, read_yaml
from dualtemp.paper.comparisons import (
    ABSENT,
    FAILS,
    HOLDS,
    RULES,
    UNDECIDED,
    Comparison,
    Finding,
    MeasuredCell,
    Strictness,
    Table,
)
from dualtemp.paper.intervals import Looks, at_once


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

    @property
    def comparisons(self) -> int:
        """How many comparisons the claim makes at this scale."""
        return comparisons_of(self.findings)

    @property
    def pools(self) -> dict[str, str]:
        """What the variance is pooled over, and why, by table."""
        return {id: pooling(id) for id in dict.fromkeys(f.artefact for f in self.findings if f.verdict != ABSENT)}

    def error(self, level: float) -> str:
        """How many comparisons there are, and what that does to the level of one, in words."""
        if self.comparisons < 2:
            return "One comparison."
        rises = " (a rise and each of its steps)" if any(f.comparisons > 1 for f in self.findings) else ""
        missed = min(100.0, 100 * (1 - level) * self.comparisons)
        return (
            f"{self.comparisons} comparisons{rises}: with {percent(level)} each, the chance that one of them misses is "
            f"up to {missed:.3g} %; at once, each has {percent(at_once(level, self.comparisons))}."
        )


def percent(level: float) -> str:
    """A confidence in words: 95 %, 97.06 %, 99.917 %."""
    return f"{100 * level:.5g} %"


@cache
def rules() -> dict[str, Any]:
    """What claims.yaml declares."""
    return read_yaml("claims.yaml")


def judged(tables: dict[str, Table], scale: str = "") -> list[Verdict]:
    """The verdict on every claim, from tables by artefact; artefacts that are not given count as not run."""
    looks = looks_at(scale)
    return [
        verdict(name, claim["says"], _findings(claim["shown_by"], tables, looks))
        for name, claim in rules()["claims"].items()
    ]


def looks_at(scale: str) -> Looks:
    """When claims are looked at, and with which confidence, at a scale."""
    declared = rules()["looks"].get(scale)
    return Looks(rules()["confidence"]) if declared is None else Looks(declared["level"], tuple(declared["seeds"]))


def pooling(id: str) -> str:
    """Which cells of a table share one variance, and why, in a sentence."""
    rule = rules()["pools"][id]
    over = {"table": "pooled over the table", "row": "pooled by row", "column": "pooled by column"}
    return f"{over.get(rule['over'], 'not pooled, seed by seed')} ({rule['why']})"


def comparisons_of(findings: Iterable[Finding]) -> int:
    """How many comparisons findings stand for; those that are not at this scale are none."""
    return sum(finding.comparisons for finding in findings if finding.verdict != ABSENT)


def verdict(name: str, says: str, findings: list[Finding]) -> Verdict:
    """It holds if all comparisons do, and does not if one does not; those that are not at this scale are left out."""
    found = {finding.verdict for finding in findings} - {ABSENT}
    if not found:
        return Verdict(name, says, ABSENT if findings else UNDECIDED, tuple(findings))
    decided = FAILS if FAILS in found else UNDECIDED if UNDECIDED in found else HOLDS
    return Verdict(name, says, decided, tuple(findings))


def _findings(lines: list[dict[str, Any]], tables: dict[str, Table], looks: Looks) -> list[Finding]:
    """Every comparison, as the first look that decides it leaves it, or the last that has been reached."""
    margin = rules()["margin"]

    def at(seeds: int | None, count: int) -> list[Finding]:
        cut = {id: {place: cell.up_to(seeds) for place, cell in table.items()} for id, table in tables.items()}
        strict = Strictness(margin, looks.level, at_once(looks.level, count), seeds or 0)
        return [finding for line in lines for finding in compared(line, cut, strict)]

    count = comparisons_of(at(None, 1))
    rounds = [at(seeds, count) for seeds in looks.seeds or (None,)]
    chosen = []
    for of_comparison in zip(*rounds, strict=True):
        decided = [finding for finding in of_comparison if finding.verdict != UNDECIDED]
        reached = [finding for finding in of_comparison if finding.reached]
        chosen.append((decided[:1] or reached[-1:] or list(of_comparison[:1]))[0])
    return chosen


def compared(comparison: dict[str, Any], tables: dict[str, Table], strict: Strictness) -> list[Finding]:
    """All findings of one line of claims.yaml."""
    kind = next(kind for kind in RULES if kind in comparison)
    names, findings = comparison[kind], []
    for id in [comparison["in"]] if isinstance(comparison["in"], str) else comparison["in"]:
        artefact, table = artefacts()[id], tables.get(id, {})
        for place in _places(comparison, artefact):
            addresses = {name: _address(comparison, place, name) for name in names}
            cells = {name: table.get(address, MeasuredCell()) for name, address in addresses.items()}
            pool = pooled_cells(id, table, addresses.values())
            findings += RULES[kind](Comparison(id, place, cells, pool, strict))
    return findings


def pooled_cells(id: str, table: Table, addresses: Iterable[tuple[str, str]]) -> list[dict[int, float]]:
    """The values, by seed, of the cells that share a variance with these: each run once, none of a collapsed cell.

    A collapsed cell sits at chance and hardly varies: it says nothing of the others' noise.
    """
    groups = {_group(id, address) for address in addresses}
    distinct = {cell.run or place: cell for place, cell in table.items() if _group(id, place) in groups}
    return [cell.values for cell in distinct.values() if not cell.collapsed]


def pools(id: str, table: Table) -> dict[str, list[dict[int, float]]]:
    """All cells of a table that share a variance, by the row or column that they share; none if it pools nothing."""
    if rules()["pools"].get(id, {"over": "none"})["over"] == "none":
        return {}
    return {_group(id, place): pooled_cells(id, table, [place]) for place in table}


def _group(id: str, place: tuple[str, str]) -> str:
    """The row or column within which a cell shares its variance; "" if that is the table."""
    return {"row": place[0], "column": place[1]}.get(rules()["pools"][id]["over"], "")


def unseen_cells(id: str) -> str:
    """In a sentence, the cells of a table that no claim compares; "" if there are none or the table has no claim."""
    artefact = artefacts()[id]
    if not artefact.claims:
        return ""
    seen = {
        _address(line, place, name)
        for claim in rules()["claims"].values()
        for line in claim["shown_by"]
        if id in ([line["in"]] if isinstance(line["in"], str) else line["in"])
        for place in _places(line, artefact)
        for name in next(line[kind] for kind in RULES if kind in line)
    }
    left = [(row, column) for row in artefact.rows for column in artefact.columns if (row, column) not in seen]
    columns = [c for c in artefact.columns if all((row, c) in left for row in artefact.rows)]
    rows = [r for r in artefact.rows if all((r, column) in left for column in artefact.columns)]
    names = [*rows, *columns, *(f"{r} {c}" for r, c in left if r not in rows and c not in columns)]
    return f"No claim looks at {', '.join(names)}. {rules()['unseen'].get(id, '')}".strip() if names else ""


def _places(comparison: Mapping[str, Any], artefact: Artefact) -> Iterable[str]:
    """The rows or columns in which a comparison is made."""
    names = artefact.rows if comparison["each"] == "row" else artefact.columns
    chosen = comparison.get("of", list(names))
    return [name for name in chosen if name not in comparison.get("except", ())]


def _address(comparison: Mapping[str, Any], place: str, name: str) -> tuple[str, str]:
    return (place, name) if comparison["each"] == "row" else (name, place)
