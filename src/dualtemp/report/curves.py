"""The measures of a run over its epochs: what each means, which way is good, and what to compare it with."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualtemp.report.epoch_chart import Line, Reference, epoch_chart, moves
from dualtemp.runs.record import RunRecord, points
from dualtemp.training.thresholds import COLLAPSED, hardest_tenth

PERCENT = "{:.2f} %"


@dataclass(frozen=True)
class Measure:
    """A measure of metrics.jsonl; says: one sentence on what it means and which way is good."""

    title: str
    says: str
    form: str = "{:.4g}"
    reference: Callable[[RunRecord], Reference | None] = lambda run: None
    here: Callable[[RunRecord], str] = lambda run: ""  # one more sentence, on runs like this one


def _chance(run: RunRecord) -> Reference | None:
    return Reference("chance", 100 * run.chance) if run.chance is not None else None


def _all_alike(run: RunRecord) -> Reference:
    return Reference(f"log {run.chosen.batch}: all weigh the same", math.log(run.chosen.batch))


def _even_share(run: RunRecord) -> Reference:
    """What the hardest ceil(N/10) of N anchors carry if all weigh the same."""
    N = run.chosen.batch
    return Reference("all weigh the same", hardest_tenth(N) / N)


def _even_share_told(run: RunRecord) -> str:
    N = run.chosen.batch
    few = hardest_tenth(N)
    return f"Where all weigh the same it is {few} of {N} = {few / N:.3g} (dashed)."


MEASURES: Mapping[str, Measure] = {
    "loss": Measure(
        "Loss",
        "Lower is better within one run, but for MoCo, whose negatives get harder as its dictionary fills and its keys "
        "come to agree. Losses of other frameworks, temperatures or batches do not compare.",
    ),
    "probe_top1": Measure(
        "Linear probe, top-1",
        "Share of test images that a linear classifier on the features gets right: higher is better, and the last "
        "epoch's value is the result.",
        PERCENT,
        _chance,
    ),
    "knn_top1": Measure(
        "kNN, top-1",
        "Share of test images whose nearest training images vote for the right class: higher is better; nothing is "
        "trained for it.",
        PERCENT,
        _chance,
    ),
    "lr": Measure(
        "Learning rate", "At the epoch's last step: warm-up, then a cosine to 0; neither way is good or bad."
    ),
    "entropy": Measure(
        "Entropy of r_+",
        "How evenly the anchors of a step share the weight, in nats. At log N all weigh the same, which tau_beta 1 or "
        "many keys are for; the lower, the fewer anchors decide the step.",
        "{:.6g}",
        _all_alike,
    ),
    "W_mean": Measure(
        "Mean weight W",
        "How hard the anchors are: near 1 negatives hide the positive, near 0 telling them apart is too easy to teach "
        "anything. Falls as the encoder learns.",
    ),
    "W_spread": Measure(
        "Spread of W",
        "Standard deviation of W over the anchors of a step: 0 where all weigh the same; the larger, the more hard "
        "anchors count beyond easy ones. Small is what the dual temperature wants.",
    ),
    "hardest_tenth": Measure(
        "Share of the hardest tenth",
        "Share of the weight, and so of the gradient's scale, that the hardest tenth of the anchors of a step, rounded "
        "up, carries: near 1 a few anchors decide everything.",
        reference=_even_share,
        here=_even_share_told,
    ),
    "alignment": Measure(
        "Alignment",
        "Mean squared distance of the unit features of two views of an image: lower is better, as long as uniformity "
        "does not rise towards 0 with it.",
    ),
    "uniformity": Measure(
        "Uniformity",
        "How evenly the features fill the sphere: lower is better; 0 means that all images look the same.",
    ),
    "spread": Measure(
        "Feature spread",
        f"About 1 where features point everywhere alike; below {COLLAPSED} the encoder has collapsed. Higher is "
        "better.",
        reference=lambda run: Reference("collapsed", COLLAPSED),
    ),
    "effective_rank": Measure(
        "Effective rank",
        "In how many directions the features vary, weighted by how much: 1 is collapse onto one line. Higher is "
        "better.",
    ),
}
# On a run's page: measures of one axis share a chart.
GROUPS: tuple[tuple[str, str, tuple[tuple[str, ...], ...]], ...] = (
    ("learning", "Learning", (("loss",), ("probe_top1", "knn_top1"), ("lr",))),
    ("hardness", "Hardness: what the anchors weigh", (("entropy",), ("hardest_tenth",), ("W_mean",), ("W_spread",))),
    ("features", "Features", (("alignment",), ("uniformity",), ("spread",), ("effective_rank",))),
)
TOGETHER: Mapping[tuple[str, ...], str] = {("probe_top1", "knn_top1"): "Probe and kNN, top-1"}


def run_charts(run: RunRecord) -> list[dict[str, Any]]:
    """Charts of one run, in groups that have any: id, title, charts of id, title, says, svg, legend and now.

    Where nothing moves there is no chart; the group's `still` has titles and values.
    """
    return _grouped({id: [_of_one_run(run, keys) for keys in charts] for id, _, charts in GROUPS})


def compared_charts(runs: Sequence[tuple[str, RunRecord]]) -> list[dict[str, Any]]:
    """Charts of several runs by name, a line a run, in the same groups."""
    return _grouped({id: [_of_many_runs(runs, key) for keys in charts for key in keys] for id, _, charts in GROUPS})


def _grouped(drawn: Mapping[str, Sequence[dict[str, Any] | None]]) -> list[dict[str, Any]]:
    groups = []
    for id, title, _ in GROUPS:
        found = [chart for chart in drawn[id] if chart is not None]
        charts = [chart for chart in found if chart["svg"]]
        still = [(chart["title"], chart["now"]) for chart in found if not chart["svg"]]
        groups.append({"id": id, "title": title, "charts": charts, "still": still})
    return [group for group in groups if group["charts"] or group["still"]]


def _of_one_run(run: RunRecord, keys: tuple[str, ...]) -> dict[str, Any] | None:
    lines = [
        Line(MEASURES[key].title.removesuffix(", top-1"), points(run.history, key), number, MEASURES[key].form)
        for number, key in enumerate(keys)
    ]
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    title = TOGETHER.get(keys, MEASURES[keys[0]].title)
    reference = MEASURES[keys[0]].reference(run)
    return {
        "id": keys[0],
        "title": title,
        "says": " ".join(
            filter(None, (words for key in keys for words in (MEASURES[key].says, MEASURES[key].here(run))))
        ),
        "svg": epoch_chart(title, lines, [reference] if reference else [])
        if any(moves([line]) for line in lines)
        else "",
        "legend": [(line.name, line.number) for line in lines] if len(keys) > 1 else [],
        "now": ", ".join(line.form.format(line.points[-1][1]) for line in lines),
    }


def _of_many_runs(runs: Sequence[tuple[str, RunRecord]], key: str) -> dict[str, Any] | None:
    measure = MEASURES[key]
    lines = [Line(name, points(run.history, key), number, measure.form) for number, (name, run) in enumerate(runs)]
    if not any(line.points for line in lines):
        return None
    # A level is drawn where all runs that are drawn share it: chance of one set, log N of one batch.
    levels = {measure.reference(run) for (_, run), line in zip(runs, lines, strict=True) if line.points}
    references = [level for level in levels if level is not None] if len(levels) == 1 else []
    svg = epoch_chart(measure.title, lines, references) if moves(lines) else ""
    here = {measure.here(run) for (_, run), line in zip(runs, lines, strict=True) if line.points}
    says = " ".join(filter(None, (measure.says, *(here if len(here) == 1 else ()))))
    now = "" if svg else measure.form.format(next(line.points[-1][1] for line in lines if line.points))
    return {"id": key, "title": measure.title, "says": says, "svg": svg, "legend": [], "now": now}
