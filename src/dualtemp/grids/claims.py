"""Judge claims about tables by measured cells. Pure functions; needs no torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dualtemp.grids.artifact import Artifact
from dualtemp.grids.comparisons import (
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
from dualtemp.intervals import Looks, bonferroni
from dualtemp.runs.metrics import measures

POOLED = {
    "table": "pooled over the table",
    "row": "pooled by row",
    "column": "pooled by column",
    "cells": "pooled over the compared cells",
}
SEED_BY_SEED = "not pooled, seed by seed"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, and its findings; pools: by table, which cells share a variance, and why."""

    claim: str
    says: str
    verdict: str
    findings: tuple[Finding, ...]
    pools: dict[str, str] = field(default_factory=dict)

    @property
    def why(self) -> str:
        """The number of findings with each verdict, in words."""
        counts = [f"{sum(f.verdict == v for f in self.findings)} {v}" for v in (HOLDS, FAILS, UNDECIDED, ABSENT)]
        return ", ".join(count for count in counts if not count.startswith("0 ")) or "nothing to compare"

    @property
    def comparisons(self) -> int:
        """Number of comparisons that the claim makes at this scale."""
        return count_comparisons(self.findings)

    def error(self, level: float) -> str:
        """Describe how many comparisons there are, and the chance that at least one of them errs."""
        if self.comparisons < 2:
            return f"One comparison, at {percent(level)}."
        rises = " (a rise and each of its steps)" if any(f.comparisons > 1 for f in self.findings) else ""
        missed = min(100.0, 100 * (1 - level) * self.comparisons)
        return (
            f"{self.comparisons} comparisons{rises}: at {percent(level)} each, the chance that at least one interval "
            f"misses is up to {missed:.3g} %; at once, each is at {percent(bonferroni(level, self.comparisons))}."
        )


def percent(level: float) -> str:
    """Format a confidence level: 95 %, 97.06 %, 99.917 %."""
    return f"{100 * level:.5g} %"


@dataclass(frozen=True)
class Rules:
    """Claims about tables, and how to judge them; claims.yaml of the paper explains each part.

    artifacts: the tables that claims are about; claims: by name, `says` and `shown_by`; looks: by scale; pools: by
    table, over which cells the variance is pooled, and why; uncompared: by table, why no claim compares some cells.
    """

    artifacts: Mapping[str, Artifact]
    claims: Mapping[str, Any]
    margin: float = 1.0
    confidence: float = 0.95
    looks: Mapping[str, Any] = field(default_factory=dict)
    pools: Mapping[str, Any] = field(default_factory=dict)
    uncompared: Mapping[str, str] = field(default_factory=dict)

    def planned_looks(self, scale: str) -> Looks:
        """Return when claims are looked at, and at which confidence, at a scale."""
        declared = self.looks.get(scale)
        return Looks(self.confidence) if declared is None else Looks(declared["level"], tuple(declared["seeds"]))

    def describe_pooling(self, id: str, rises: bool = False) -> str:
        """Describe which cells of a table share a variance, and why; rises: the claim compares nothing but rises."""
        rule = self.pools[id]
        if rises and rule["over"] in POOLED:
            return f"{SEED_BY_SEED} (a rise is measured within seeds)"
        return f"{POOLED.get(rule['over'], SEED_BY_SEED)} ({rule['why']})"

    def group(self, id: str, place: tuple[str, str]) -> str | tuple[str, str]:
        """Return the row or column within which a cell shares its variance, or its own place; "" for the table."""
        return {"row": place[0], "column": place[1], "cells": place}.get(self.pools[id]["over"], "")


def judge_claims(rules: Rules, tables: dict[str, Table], scale: str = "") -> list[Verdict]:
    """Judge every claim from tables by artifact; artifacts that are not given count as not run."""
    looks, verdicts = rules.planned_looks(scale), []
    for name, claim in rules.claims.items():
        findings = _findings(rules, claim["shown_by"], tables, looks)
        there = dict.fromkeys(f.artifact for f in findings if f.verdict != ABSENT)
        rises = all("rises" in line for line in claim["shown_by"])
        pools = {id: rules.describe_pooling(id, rises) for id in there}
        verdicts.append(judge_claim(name, claim["says"], findings, pools))
    return verdicts


def count_comparisons(findings: Iterable[Finding]) -> int:
    """Count the comparisons behind findings; those that are not at this scale do not count."""
    return sum(finding.comparisons for finding in findings if finding.verdict != ABSENT)


def judge_claim(name: str, says: str, findings: list[Finding], pools: dict[str, str]) -> Verdict:
    """Judge a claim: it holds if all findings do, and fails if one does; those not at this scale are left out."""
    found = {finding.verdict for finding in findings} - {ABSENT}
    if not found:
        return Verdict(name, says, ABSENT if findings else UNDECIDED, tuple(findings), pools)
    decided = FAILS if FAILS in found else UNDECIDED if UNDECIDED in found else HOLDS
    return Verdict(name, says, decided, tuple(findings), pools)


def _findings(rules: Rules, lines: list[dict[str, Any]], tables: dict[str, Table], looks: Looks) -> list[Finding]:
    """Return each finding from the first look that decides it, or else from the last look that was reached."""

    def at(seeds: int | None, count: int) -> list[Finding]:
        cut = {id: {place: cell.up_to(seeds) for place, cell in table.items()} for id, table in tables.items()}
        strict = Strictness(rules.margin, looks.level, bonferroni(looks.level, count), seeds or 0)
        return [finding for line in lines for finding in compare(rules, line, cut, strict)]

    count = count_comparisons(at(None, 1))
    rounds = [at(seeds, count) for seeds in looks.seeds or (None,)]
    chosen = []
    for of_comparison in zip(*rounds, strict=True):
        decided = [finding for finding in of_comparison if finding.verdict != UNDECIDED]
        reached = [finding for finding in of_comparison if finding.reached]
        chosen.append((decided[:1] or reached[-1:] or list(of_comparison[:1]))[0])
    return chosen


def compare(rules: Rules, comparison: Mapping[str, Any], tables: dict[str, Table], strict: Strictness) -> list[Finding]:
    """Return all findings of one line of a claim."""
    kind = next(kind for kind in RULES if kind in comparison)
    names, findings = comparison[kind], []
    for id in [comparison["in"]] if isinstance(comparison["in"], str) else comparison["in"]:
        artifact, table = rules.artifacts[id], tables.get(id, {})
        for place in places_of(comparison, artifact):
            addresses = {name: _address(comparison, place, name) for name in names}
            cells = {name: table.get(address, MeasuredCell()) for name, address in addresses.items()}
            pool = pooled_values(rules, id, table, addresses.values())
            findings += RULES[kind](Comparison(id, place, cells, pool, strict, _less_is_better(artifact)))
    return findings


def _less_is_better(artifact: Artifact) -> bool:
    measure = measures().get(artifact.metric or "")
    return measure is not None and measure.better == "lower"


def pooled_values(rules: Rules, id: str, table: Table, addresses: Iterable[tuple[str, str]]) -> list[dict[int, float]]:
    """Return values by seed of the cells that share a variance with `addresses`: each run once, no collapsed cells.

    A collapsed cell sits at chance level and hardly varies, so it says nothing about the noise of the others.
    """
    groups = {rules.group(id, address) for address in addresses}
    distinct = {cell.run or place: cell for place, cell in table.items() if rules.group(id, place) in groups}
    return [cell.values for cell in distinct.values() if not cell.collapsed]


def variance_pools(rules: Rules, id: str, table: Table) -> dict[str, list[dict[int, float]]]:
    """Group a table's cells by the row or column within which they share a variance; {} if nothing is pooled."""
    if rules.pools.get(id, {"over": "none"})["over"] == "none":
        return {}
    return {str(rules.group(id, place)): pooled_values(rules, id, table, [place]) for place in table}


def describe_uncompared_cells(rules: Rules, id: str) -> str:
    """Describe the cells of a table that no claim compares; "" if there are none or the table has no claim."""
    artifact = rules.artifacts[id]
    if not artifact.claims:
        return ""
    seen = {
        _address(line, place, name)
        for claim in rules.claims.values()
        for line in claim["shown_by"]
        if id in ([line["in"]] if isinstance(line["in"], str) else line["in"])
        for place in places_of(line, artifact)
        for name in next(line[kind] for kind in RULES if kind in line)
    }
    left = [(row, column) for row in artifact.rows for column in artifact.columns if (row, column) not in seen]
    columns = [c for c in artifact.columns if all((row, c) in left for row in artifact.rows)]
    rows = [r for r in artifact.rows if all((r, column) in left for column in artifact.columns)]
    names = [*rows, *columns, *(f"{r} {c}" for r, c in left if r not in rows and c not in columns)]
    return f"No claim compares {', '.join(names)}. {rules.uncompared.get(id, '')}".strip() if names else ""


def places_of(comparison: Mapping[str, Any], artifact: Artifact) -> Iterable[str]:
    """Return the rows or columns in which a comparison is made."""
    names = artifact.rows if comparison["each"] == "row" else artifact.columns
    chosen = comparison.get("of", list(names))
    return [name for name in chosen if name not in comparison.get("except", ())]


def _address(comparison: Mapping[str, Any], place: str, name: str) -> tuple[str, str]:
    return (place, name) if comparison["each"] == "row" else (name, place)
