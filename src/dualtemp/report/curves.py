"""Charts of measures over epochs, of one run or several, as declared in the table of measures."""

from collections.abc import Mapping, Sequence
from typing import Any

from dualtemp.report.epoch_chart import Line, epoch_chart, varies
from dualtemp.runs.measure import GROUPS, Measure
from dualtemp.runs.metrics import SHARED_CHARTS, described
from dualtemp.runs.record import RunRecord, points


def run_charts(run: RunRecord) -> list[dict[str, Any]]:
    """Draw the charts of one run. Returns the groups that are not empty, each with id, title, charts and still.

    A chart has id, title, says, svg, legend and now. Measures that never vary get no chart: `still` lists their titles
    and values.
    """
    return _grouped(
        {group: [_of_one_run(run, shared) for shared in charts] for group, charts in _charts([run]).items()}
    )


def compared_charts(runs: Sequence[tuple[str, RunRecord]]) -> list[dict[str, Any]]:
    """Draw the charts of several named runs in the same groups, with a line per run."""
    groups = _charts([run for _, run in runs])
    return _grouped(
        {group: [_of_many_runs(runs, each) for shared in charts for each in shared] for group, charts in groups.items()}
    )


def _charts(runs: Sequence[RunRecord]) -> dict[str, list[list[Measure]]]:
    """Return the measures of each chart by group, in the table's order; measures that share axes form one chart."""
    keys = (key for run in runs for line in run.history for key in line)
    groups: dict[str, dict[str, list[Measure]]] = {group: {} for group in GROUPS}
    for each in described(keys).values():
        if each.group:
            groups[each.group].setdefault(each.chart or each.key, []).append(each)
    return {group: list(charts.values()) for group, charts in groups.items()}


def _grouped(drawn: Mapping[str, Sequence[dict[str, Any] | None]]) -> list[dict[str, Any]]:
    groups = []
    for id, title in GROUPS.items():
        found = [chart for chart in drawn[id] if chart is not None]
        charts = [chart for chart in found if chart["svg"]]
        still = [(chart["title"], chart["now"]) for chart in found if not chart["svg"]]
        groups.append({"id": id, "title": title, "charts": charts, "still": still})
    return [group for group in groups if group["charts"] or group["still"]]


def _of_one_run(run: RunRecord, shared: Sequence[Measure]) -> dict[str, Any] | None:
    first = shared[0]
    lines = [
        Line(each.title.removesuffix(", top-1"), points(run.history, each.key), number, each.form)
        for number, each in enumerate(shared)
    ]
    told = [each for each, line in zip(shared, lines, strict=True) if line.points]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    title = SHARED_CHARTS.get(first.chart, first.title)
    reference = first.reference(run)
    return {
        "id": first.key,
        "title": title,
        "says": " ".join(filter(None, (words for each in told for words in (each.says, each.remark(run))))),
        "svg": epoch_chart(title, lines, [reference] if reference else [])
        if any(varies([line]) for line in lines)
        else "",
        "legend": [(line.name, line.number) for line in lines] if len(shared) > 1 else [],
        "now": ", ".join(line.form.format(line.points[-1][1]) for line in lines),
    }


def _of_many_runs(runs: Sequence[tuple[str, RunRecord]], measure: Measure) -> dict[str, Any] | None:
    key = measure.key
    lines = [Line(name, points(run.history, key), number, measure.form) for number, (name, run) in enumerate(runs)]
    if not any(line.points for line in lines):
        return None
    # A level is drawn only if all runs on the chart share it: chance of one set, log N of one batch size.
    levels = {measure.reference(run) for (_, run), line in zip(runs, lines, strict=True) if line.points}
    references = [level for level in levels if level is not None] if len(levels) == 1 else []
    svg = epoch_chart(measure.title, lines, references) if varies(lines) else ""
    remarks = {measure.remark(run) for (_, run), line in zip(runs, lines, strict=True) if line.points}
    says = " ".join(filter(None, (measure.says, *(remarks if len(remarks) == 1 else ()))))
    now = "" if svg else measure.form.format(next(line.points[-1][1] for line in lines if line.points))
    return {"id": key, "title": measure.title, "says": says, "svg": svg, "legend": [], "now": now}
