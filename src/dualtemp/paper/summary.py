"""Summary of the claims as Markdown: verdicts, effects with intervals, cells, commands and times."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from math import isnan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dualtemp.atomic_write import write_output
from dualtemp.config import MEASURED_ON
from dualtemp.grids.artifact import Artifact
from dualtemp.grids.comparisons import ABSENT, HOLDS, Finding, MeasuredCell, Table
from dualtemp.grids.data_choice import split_pair
from dualtemp.grids.known_data import known_facts, set_name
from dualtemp.grids.plan import PlannedCell
from dualtemp.grids.results import DataFacts, Results
from dualtemp.grids.tables import Collected, collect_results
from dualtemp.intervals import Interval
from dualtemp.paper.artifact import artifacts
from dualtemp.paper.claims import Verdict, describe_uncompared_cells, judge_claims, percent, planned_looks
from dualtemp.paper.reproduce import Request
from dualtemp.quantities import counted
from dualtemp.report.page import MINUS

NONE = "\N{EN DASH}"


def write_paper_summary(request: Request, path: Path, facts: Mapping[str, DataFacts] | None = None) -> None:
    """Write a summary of the claims of the selected tables; facts: of data that is already open."""
    everything, results = replace(request, ids=["all"]).make_plan(), Results(request.results)
    there = collect_results(everything, request.seeds, known_facts(everything, results, facts), results)
    write_output(path, paper_summary(request, there), "--summary")


def paper_summary(request: Request, there: Collected) -> str:
    """Build the summary as Markdown; claims with nothing to compare, and tables without a run, are left out."""
    found = request.make_plan()
    wanted = {claim for artifact in found.artifacts for claim in artifact.claims}
    verdicts = [
        v
        for v in judge_claims(there.tables, request.scale)
        if v.claim in wanted and any(f.interval for f in v.findings)
    ]
    shown = [a for a in found.artifacts if any(cell.values for cell in there.tables[a.id].values())]
    runs = {a.id: _runs(found.cells[a.id], there) for a in shown}
    level = planned_looks(request.scale).level
    lines = [
        f"{_cost({word: run for of_table in runs.values() for word, run in of_table.items()})} at scale "
        f"`{request.scale}`. Effects are first minus",
        "second, in points of top-1 accuracy of the online probe unless a figure measures something else, with "
        f"{percent(level)}",
        "intervals (Student's t), which decide whether a comparison holds. At once: the interval that covers all",
        "comparisons of the claim together (Bonferroni); read this one to refute a claim, or to pick one comparison",
        'out of many. What holds only by the first holds "singly". Seed by seed: the same difference within seeds,',
        "which share images and initial weights; it decides nothing. In brackets: the number of seeds.",
        *_looks(request.scale),
        "",
        "| claim | | verdict | comparisons that hold | of these, at once |",
        "|---|---|---|---|---|",
        *(f"| {v.claim} | {v.says} | **{v.verdict}** | {_that_hold(v)} | {_at_once(v)} |" for v in verdicts),
    ]
    if request.validate != "test":
        lines = [f"Measured on {MEASURED_ON[request.validate]}; test images were not looked at.", "", *lines]
    for v in verdicts:
        variance = "; ".join(f"{id} {how}" for id, how in v.pools.items())
        lines += ["", f"### {v.claim}: {v.says}", "", f"{v.error(level)} Variance: {variance}.", ""]
        lines += _findings(v, percent(level))
    for a in shown:
        lines += ["", f"### {a.id}: {a.title}", "", f"    {_command(request, a, runs[a.id])}", ""]
        data = dict.fromkeys(there.data[found.runs[word].settings["data"]] for word in runs[a.id])
        lines += [f"{_cost(runs[a.id])}, on {', '.join(data)}.", "", *_cells(a, there.tables[a.id])]
        lines += ["", describe_uncompared_cells(a.id)] if describe_uncompared_cells(a.id) else []
    return "\n".join(lines) + "\n"


def _runs(cells: Mapping[Any, PlannedCell], there: Collected) -> dict[str, dict[int, dict[str, Any]]]:
    """The results behind a table, by run and seed."""
    return {cell.run: there.results[cell.run] for cell in cells.values() if cell.run in there.results}


def _cost(runs: Mapping[str, Mapping[int, dict[str, Any]]]) -> str:
    results = [result for by_seed in runs.values() for result in by_seed.values()]
    return f"{len(results)} runs, {sum(result.get('seconds', 0) for result in results) / 3600:.1f} hours of computing"


def _command(request: Request, artifact: Artifact, runs: Mapping[str, Mapping[int, Any]]) -> str:
    """Return the command for a table's runs, with the seeds that all its cells share, else all seeds."""
    of_cells = [set(by_seed) for by_seed in runs.values()]
    numbers = sorted(set[int].intersection(*of_cells) or set[int].union(*of_cells))
    seeds = str(len(numbers)) if numbers == list(range(1, len(numbers) + 1)) else ",".join(map(str, numbers)) + ","
    data = [part for word in request.data for part in ("--data", _without_place(word))]
    words = ["dualtemp", "reproduce", artifact.id, "--scale", request.scale, "--seeds", seeds, *data]
    return shlex.join([*words, *request.validate_flags()])


def _without_place(word: str) -> str:
    """Replace a path or fingerprint in a value of --data by FOLDER, since neither means anything elsewhere."""
    stands_for, data = split_pair(word)
    return ("" if stands_for is None else f"{stands_for}=") + (set_name(data) or "FOLDER")


def _that_hold(v: Verdict) -> str:
    here = [f for f in v.findings if f.verdict != ABSENT]
    held, without = sum(f.verdict == HOLDS for f in here), sum(f.interval is None for f in here)
    return f"{held} of {len(here)}" + (f", {without} not compared" if without else "")


def _at_once(v: Verdict) -> str:
    return str(sum(f.holds_at_once for f in v.findings))


def _looks(scale: str) -> list[str]:
    """Describe when the claims are looked at, if that was declared."""
    seeds = planned_looks(scale).seeds
    return (
        [f"Looked at after {' and '.join(map(str, seeds))} seeds; what one look decides stays decided."]
        if seeds
        else []
    )


def _findings(v: Verdict, level: str) -> list[str]:
    left_out = sum(f.verdict == ABSENT for f in v.findings)
    rows = [
        f"| {f.artifact} | {f.where} | {f.says} | {_effect(f)} | {_bounds(f, f.at_once)} | {_interval(f, f.by_seed)} "
        f"| {f.runs} | {f.word} |"
        for f in v.findings
        if f.verdict != ABSENT
    ]
    be = "is" if left_out == 1 else "are"
    note = ["", f"{counted(left_out, 'comparison')} {be} not at this scale."] if left_out else []
    return [
        f"| table | where | comparison | effect, {level} interval | at once | seed by seed | runs | |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        *note,
    ]


def _effect(f: Finding) -> str:
    if f.interval is None:
        return f.why or NONE
    return _interval(f, f.interval) + (f"; {f.why}" if f.why else "")


def _interval(f: Finding, interval: Interval | None) -> str:
    if interval is None or isnan(interval.effect):
        return NONE
    effect = f"{interval.effect:+.{artifacts()[f.artifact].digits}f}".replace("-", MINUS)
    return effect if interval.low is None else f"{effect} ({_bounds(f, interval)})"


def _bounds(f: Finding, interval: Interval | None) -> str:
    if interval is None or interval.low is None:
        return NONE
    digits = artifacts()[f.artifact].digits
    return " … ".join(f"{bound:+.{digits}f}" for bound in interval.bounds).replace("-", MINUS)


def _cells(artifact: Artifact, table: Table) -> list[str]:
    columns, digits = list(artifact.columns), artifact.digits
    head = f"| {artifact.row_title} \\ {artifact.column_title} | " + " | ".join(columns) + " |"
    rows = [
        f"| {row} | " + " | ".join(_cell(table[row, column], digits) for column in columns) + " |"
        for row in artifact.rows
    ]
    return [head, "|---" * (len(columns) + 1) + "|", *rows]


def _cell(cell: MeasuredCell, digits: int) -> str:
    values = list(cell.values.values())
    if not values:
        return "not at this scale" if cell.absent else f"{len(cell.failed)} failed" if cell.failed else NONE
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    some = f"{len(cell.collapsed)} " if len(cell.collapsed) < len(values) else ""
    collapsed = f" ({some}collapsed)" if cell.collapsed else ""
    return f"{fmean(values):.{digits}f}{spread} [{len(values)}]{collapsed}"
