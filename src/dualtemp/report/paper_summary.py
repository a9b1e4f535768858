"""The claims in a page of Markdown: verdict, effects with intervals, cells, command and time."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from dualtemp.paper.artefact import Artefact
from dualtemp.paper.claims import ABSENT, Finding, MeasuredCell, Table, Verdict, judged
from dualtemp.paper.reproduce import Request
from dualtemp.paper.results import Results
from dualtemp.paper.tables import Collected, collected, known_facts
from dualtemp.report.page import MINUS
from dualtemp.whole_file import write_output

NONE = "\N{EN DASH}"


def write_paper_summary(request: Request, path: Path) -> None:
    """Write what the results folder says of the claims of the chosen tables; needs no data and no torch."""
    everything, results = replace(request, ids=["all"]).planned(), Results(request.results)
    there = collected(everything, request.seeds, known_facts(everything, results), results)
    write_output(path, paper_summary(request, there), "--summary")


def paper_summary(request: Request, there: Collected) -> str:
    """The summary as Markdown; claims and tables of which nothing has been run are left out."""
    found = request.planned()
    wanted = {claim for artefact in found.artefacts for claim in artefact.claims}
    verdicts = [v for v in judged(there.tables) if v.claim in wanted and any(f.runs for f in v.findings)]
    shown = [a for a in found.artefacts if any(cell.values for cell in there.tables[a.id].values())]
    runs = {word: by_seed for a in shown for word, by_seed in _runs(a, found.cells[a.id], there).items()}
    seconds = sum(result.get("seconds", 0) for by_seed in runs.values() for result in by_seed.values())
    count = sum(map(len, runs.values()))
    lines = [
        f"{count} runs at scale `{request.scale}`, {seconds / 3600:.1f} hours of computing. Effects are first minus",
        "second, in points of top-1 accuracy of the online probe unless a figure measures something else, with 95 %",
        "intervals (Student's t, variance within cells pooled over the table). In brackets: seeds.",
        "",
        "| claim | | verdict |",
        "|---|---|---|",
        *(f"| {v.claim} | {v.says} | **{v.verdict}** |" for v in verdicts),
    ]
    for v in verdicts:
        lines += ["", f"### {v.claim}: {v.says}", "", *_findings(v)]
    for artefact in shown:
        lines += ["", f"### {artefact.id}: {artefact.title}", "", *_cells(artefact, there.tables[artefact.id])]
    return "\n".join(lines) + "\n"


def _runs(artefact: Artefact, cells: dict, there: Collected) -> dict[str, dict]:
    words = {cell.run for cell in cells.values() if cell.run}
    return {word: there.results[word] for word in words if word in there.results}


def _findings(v: Verdict) -> list[str]:
    left_out = sum(f.verdict == ABSENT for f in v.findings)
    rows = [
        f"| {f.artefact} | {f.where} | {f.says} | {_effect(f)} | {f.runs} | {f.verdict} |"
        for f in v.findings
        if f.verdict != ABSENT
    ]
    note = ["", f"{left_out} comparisons are not at this scale."] if left_out else []
    return [
        "| table | where | comparison | effect, 95 % interval | runs | |",
        "|---|---|---|---|---|---|",
        *rows,
        *note,
    ]


def _effect(f: Finding) -> str:
    if f.interval is None:
        return f.why or NONE
    digits = 2 if max(abs(f.interval.effect), 0.005) >= 0.005 else 5
    effect = f"{f.interval.effect:+.{digits}f}"
    if f.interval.low is not None:
        low, high = f.interval.bounds
        effect += f" ({low:+.{digits}f} … {high:+.{digits}f})"
    return (effect + (f"; {f.why}" if f.why else "")).replace("-", MINUS)


def _cells(artefact: Artefact, table: Table) -> list[str]:
    columns = list(artefact.columns)
    head = f"| {artefact.row_title} \\ {artefact.column_title} | " + " | ".join(columns) + " |"
    rows = [f"| {row} | " + " | ".join(_cell(table[row, column]) for column in columns) + " |" for row in artefact.rows]
    return [head, "|---" * (len(columns) + 1) + "|", *rows]


def _cell(cell: MeasuredCell) -> str:
    values = list(cell.values.values())
    if not values:
        return "not at this scale" if cell.absent else f"{len(cell.failed)} failed" if cell.failed else NONE
    spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    collapsed = " (collapsed)" if cell.collapsed else ""
    return f"{fmean(values):.2f}{spread} [{len(values)}]{collapsed}"
