"""The page of the paper: every table with measured beside published values, every figure, a verdict on every claim."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dualtemp.atomic_write import write_output
from dualtemp.config import MEASURED_ON
from dualtemp.grids.artifact import Artifact
from dualtemp.grids.comparisons import MeasuredCell
from dualtemp.grids.known_data import known_facts, set_name
from dualtemp.grids.plan import PlannedCell
from dualtemp.grids.results import DataFacts, Results
from dualtemp.grids.tables import Collected, collect_results
from dualtemp.paper.artifact import artifacts
from dualtemp.paper.claims import describe_uncompared_cells, judge_claims, percent, planned_looks
from dualtemp.paper.frameworks_diagram import frameworks_diagram
from dualtemp.paper.plan import PaperPlan
from dualtemp.paper.reproduce import Request
from dualtemp.paper.scale import NotAtThisScale, scale_settings
from dualtemp.report.line_chart import Point, line_chart
from dualtemp.report.page import render

TIMES = "\N{MULTIPLICATION SIGN}"


def write_paper_page(request: Request, path: Path, facts: Mapping[str, DataFacts] | None = None) -> None:
    """Write the page of the results folder; facts: of data that is already open."""
    found, results = request.make_plan(), Results(request.results)
    everything = replace(request, ids=["all"]).make_plan()  # a claim may use tables that are not shown
    there = collect_results(everything, request.seeds, known_facts(everything, results, facts), results)
    write_output(path, paper_page(found, request.seeds, there), "--report")


def paper_page(found: PaperPlan, seeds: tuple[int, ...], there: Collected) -> str:
    """Render a plan's page as HTML: one file, no network. `there` may hold further tables that claims use."""
    wanted = {claim for artifact in found.artifacts for claim in artifact.claims}
    runs = [result for word in found.runs for result in there.results.get(word, {}).values()]
    context = {
        "scale": found.scale,
        "seeds": ", ".join(map(str, seeds)),
        "measured_on": MEASURED_ON[found.scale.set.get("validate", "test")],
        "data": _data(found, there),
        "without_paper": [words for a in found.artifacts if (words := _without_paper(a, found))],
        "shows_paper": any(
            cell.cell.paper is not None and _has_papers_images(a, cell, found)
            for a in found.artifacts
            for cell in found.cells[a.id].values()
        ),
        "changes": _changes(found),
        "runs": len(runs),
        "wanted": len(found.runs) * len(seeds),
        "hours": sum(result.get("seconds", 0) for result in runs) / 3600,
        "level": planned_looks(found.scale.name).level,
        "percent": percent,
        "looks": planned_looks(found.scale.name).seeds,
        "verdicts": [verdict for verdict in judge_claims(there.tables, found.scale.name) if verdict.claim in wanted],
        "digits": {id: artifact.digits for id, artifact in artifacts().items()},
        "sections": [_section(artifact, found, there) for artifact in found.artifacts],
    }
    return render("paper.html.j2", context)


def _without_paper(artifact: Artifact, found: PaperPlan) -> str:
    """Name a table whose published values are left out, with the columns if others keep theirs; "" if none is."""
    cells = [cell for cell in found.cells[artifact.id].values() if cell.cell.paper is not None]
    left_out = [cell.cell.column for cell in cells if not _has_papers_images(artifact, cell, found)]
    if len(left_out) in (0, len(cells)):
        return artifact.id if left_out else ""
    return f"{artifact.id} ({', '.join(dict.fromkeys(left_out))})"


def _has_papers_images(artifact: Artifact, cell: PlannedCell, found: PaperPlan) -> bool:
    """Whether to show the paper's value of a cell: not if --data replaces its images by others than the paper's."""
    own = cell.cell.settings.get("data")  # if the artifact varies the set
    declared = scale_settings(artifact, cell.cell, found.scale)
    if isinstance(declared, NotAtThisScale):
        here = None if own else found.data.all
        replaced = here is not None
    else:
        here = cell.settings["data"]
        replaced = here != declared["data"]
    return not replaced or set_name(here or "") == (own or artifact.data)


def _data(found: PaperPlan, there: Collected) -> str:
    names = dict.fromkeys(there.data[run.settings["data"]] for run in found.runs.values())
    subsets = [run.settings["subset"] for run in found.runs.values() if "subset" in run.settings]
    images = f", at most {max(subsets):,} training images" if subsets else ""
    return ", ".join(names) + images


def _changes(found: PaperPlan) -> str:
    """Describe what the scale changes in the published settings."""
    scale = found.scale
    stand_ins = [
        f"{there} for {name} {published}"
        for name, of_name in scale.stand_ins.items()
        for published, there in of_name.items()
        if there != published
    ]
    methods = {run.settings["method"] for run in found.runs.values()}
    general = _factors(scale.times, scale.set)
    own = {name: _factors(*scale.of_method(name)) for name in scale.methods if name in methods}
    further = {
        name: [word for word in words if word not in general]
        for name, words in own.items()
        if set(general) < set(words)
    }
    for_all = general if further or methods - set(own) else []
    return "; ".join(
        [", ".join(for_all + stand_ins), *(f"{name}: {', '.join(words)}" for name, words in (own | further).items())]
    )


def _factors(times: Mapping[str, str], fixed: Mapping[str, Any]) -> list[str]:
    return [f"{name} {TIMES} {by}" for name, by in times.items()] + [f"{name} {value}" for name, value in fixed.items()]


def _section(artifact: Artifact, found: PaperPlan, there: Collected) -> dict[str, Any]:
    planned, measured = found.cells[artifact.id], there.tables[artifact.id]
    section: dict[str, Any] = {"artifact": artifact, "figure": "", "anchors": None, "rows": [], "columns": []}
    section["uncompared"] = describe_uncompared_cells(artifact.id)
    if artifact.drawn == "frameworks":
        return section | {"figure": frameworks_diagram()}
    if artifact.drawn == "teaser":
        return section | {"anchors": _anchors(next(iter(planned.values())), there)}
    if artifact.drawn == "lines":
        section["figure"] = _figure(artifact, planned, measured)
    section["columns"] = [(column, _here(artifact, planned, column, there)) for column in artifact.columns]

    def shown(place: tuple[str, str]) -> dict[str, Any]:
        return _shown(planned[place], measured[place], _has_papers_images(artifact, planned[place], found))

    section["rows"] = [(row, [shown((row, column)) for column in artifact.columns]) for row in artifact.rows]
    return section


def _shown(planned: PlannedCell, measured: MeasuredCell, beside_paper: bool = False) -> dict[str, Any]:
    """Return the values of a cell that the table shows."""
    values, paper = list(measured.values.values()), planned.cell.paper if beside_paper else None
    mean = fmean(values) if values else None
    return {
        "paper": paper,
        "mean": mean,
        "sd": stdev(values) if len(values) > 1 else None,
        "difference": None if mean is None or paper is None else mean - paper,
        "seeds": ", ".join(f"seed {seed}: {value:.4g}" for seed, value in measured.values.items()),
        "failed": measured.failed,
        "collapsed": _collapsed(measured),
        "absent": measured.absent,
    }


def _collapsed(measured: MeasuredCell) -> str:
    collapsed, runs = len(measured.collapsed), len(measured.values)
    return "" if not collapsed else "collapsed" if collapsed == runs else f"{collapsed} of {runs} collapsed"


def _here(artifact: Artifact, planned: Mapping[tuple[str, str], PlannedCell], column: str, there: Collected) -> str:
    """Return what a column's heading means at this scale, if that differs from the paper."""
    for row, settings in artifact.rows.items():
        cell = planned[row, column]
        if cell.run is None:
            continue
        varied = {name for name in artifact.columns[column] if not name.startswith("$")}
        varied |= {name for name, value in settings.items() if str(value).startswith("$")}
        for name in varied & set(cell.cell.settings):
            here = cell.settings[
                name if name in cell.settings else "dictionary_size"
            ]  # a part equal to the whole is dropped
            if here != cell.cell.settings[name]:
                return f"here {there.data[here] if name == 'data' else here}"
        if "size" in cell.arguments and cell.arguments["size"] != cell.cell.arguments["size"]:
            return f"here {cell.arguments['size']}"
        return ""
    return ""


def _figure(
    artifact: Artifact,
    planned: Mapping[tuple[str, str], PlannedCell],
    measured: Mapping[tuple[str, str], MeasuredCell],
) -> str:
    series: dict[str, list[Point]] = {}
    for (row, column), cell in measured.items():
        line = series.setdefault(row, [])
        if cell.values:
            shown = _shown(planned[row, column], cell)
            tooltip = f"{row}, {column}: {shown['mean']:.4g} ({shown['seeds']})"
            line.append(Point(_size(planned[row, column]), shown["mean"], shown["sd"], tooltip))
    unit = (
        "probe top-1, %"
        if artifact.measure is None
        else f"{artifact.measure['name']} of r_+, {artifact.measure['unit']}"
    )
    numbers = all(row.replace(".", "").isdigit() for row in series)
    named = {f"{artifact.row_title} {row}" if numbers else row: line for row, line in series.items()}
    return line_chart(named, artifact.column_title, unit, ordered=numbers and len(series) > 1)


def _size(cell: PlannedCell) -> float:
    if "size" in cell.arguments:
        return cell.arguments["size"]
    sizes = [cell.settings.get(name) for name in ("scalar_size", "vector_size", "dictionary_size")]
    return next(size for size in sizes if size is not None)


def _anchors(cell: PlannedCell, there: Collected) -> list[dict[str, Any]] | None:
    """Return the three anchors of the first seed that has them."""
    for result in there.results.get(cell.run or "", {}).values():
        if "measured" in result:
            return result["measured"]["teaser"]["values"]
    return None
