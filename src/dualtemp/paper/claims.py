"""Judge the paper's claims, which claims.yaml declares, by measured cells. Needs no torch."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from dualtemp.grids import claims
from dualtemp.grids.claims import Rules, Verdict, percent
from dualtemp.grids.comparisons import Finding, Strictness, Table
from dualtemp.intervals import Looks
from dualtemp.paper.artifact import artifacts, read_yaml

__all__ = ["Verdict", "percent"]


@cache
def rules() -> dict[str, Any]:
    """Read claims.yaml."""
    return read_yaml("claims.yaml")


def judge_claims(tables: dict[str, Table], scale: str = "") -> list[Verdict]:
    """Judge every claim from tables by artifact; artifacts that are not given count as not run."""
    return claims.judge_claims(_rules(), tables, scale)


def planned_looks(scale: str) -> Looks:
    """Return when claims are looked at, and at which confidence, at a scale."""
    return _rules().planned_looks(scale)


def compare(comparison: Mapping[str, Any], tables: dict[str, Table], strict: Strictness) -> list[Finding]:
    """Return all findings of one line of claims.yaml."""
    return claims.compare(_rules(), comparison, tables, strict)


def variance_pools(id: str, table: Table) -> dict[str, list[dict[int, float]]]:
    """Group a table's cells by the row or column within which they share a variance; {} if nothing is pooled."""
    return claims.variance_pools(_rules(), id, table)


def describe_uncompared_cells(id: str) -> str:
    """Describe the cells of a table that no claim compares; "" if there are none or the table has no claim."""
    return claims.describe_uncompared_cells(_rules(), id)


def _rules() -> Rules:
    return Rules(artifacts(), **rules())
