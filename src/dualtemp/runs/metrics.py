"""The one table of measures: every key of metrics.jsonl, with its name, meaning, good direction and where it is shown.

To add a measure, add an entry here and compute it; terminal, pages, tables, logs, lists and model cards read the table.
Plugins add theirs with `dualtemp.evaluation.measure`. Needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from dualtemp.errors import UserError
from dualtemp.plugins import load_installed
from dualtemp.runs.measure import DURATION, Measure, Reference, Terminal
from dualtemp.runs.thresholds import COLLAPSED, hardest_tenth

if TYPE_CHECKING:
    from dualtemp.runs.record import RunRecord

PERCENT = "{:.2f} %"
SHARED_CHARTS = {"accuracy": "Probe and kNN, top-1"}  # titles of charts that several measures share


def measures() -> dict[str, Measure]:
    """All measures by key, in the order in which they are shown: this package's, then those of plugins."""
    load_installed("dualtemp.measures")
    return _table


def accuracies() -> list[Measure]:
    """The accuracies by which runs are judged: that of the probe, which is a run's result, then that of kNN."""
    return [each for each in _ENTRIES if each.column]


def described(keys: Iterable[str]) -> dict[str, Measure]:
    """The table's entries for these keys; an undeclared key gets a chart under its own name."""
    known = measures()
    return {**known, **{key: _undeclared(key) for key in keys if key not in known}}


def is_logged(key: str) -> bool:
    """Whether this key is logged; undeclared ones are."""
    known = measures()
    return key not in known or known[key].logged


def register(entry: Measure) -> None:
    """Add a plugin's measure; raises UserError if its key is taken."""
    known = _table.get(entry.key)
    if known is not None and known.computed_by != entry.computed_by:
        raise UserError(f"two measures are called {entry.key!r}: in {known.computed_by} and in {entry.computed_by}")
    _table[entry.key] = entry


def _undeclared(key: str) -> Measure:
    return Measure(key, key, "Written by another version or by a plugin that is not loaded.", "", "", group="other")


def _chance(run: RunRecord) -> Reference | None:
    return Reference("chance", 100 * run.chance) if run.chance is not None else None


def _even_weights(run: RunRecord) -> Reference:
    return Reference(f"log {run.chosen.batch}: all weigh the same", math.log(run.chosen.batch))


def _even_share(run: RunRecord) -> Reference:
    """The share of the hardest ceil(N / 10) of N anchors if all weigh the same."""
    N = run.chosen.batch
    return Reference("all weigh the same", hardest_tenth(N) / N)


def _even_share_in_words(run: RunRecord) -> str:
    N = run.chosen.batch
    few = hardest_tenth(N)
    return f"Where all weigh the same it is {few} of {N} = {few / N:.3g} (dashed)."


_TRAINER, _STATISTICS, _ONLINE, _START, _JUDGE = (
    "dualtemp.training.trainer",
    "dualtemp.training.epoch_statistics",
    "dualtemp.evaluation.online",
    "dualtemp.training.start_comparison",
    "dualtemp.training.judged_stop",
)
_PROBE = Measure(
    "probe_top1",
    "Linear probe, top-1",
    "Share of test images that a linear classifier on the features gets right: higher is better, and the last epoch's "
    "value is the result.",
    "higher",
    _ONLINE,
    PERCENT,
    "probe, top-1",
    Terminal("probe {:.2f} %", 1),
    tile=True,
    group="learning",
    chart="accuracy",
    compared=True,
    rated=True,
    column="probe",
    card="online linear probe",
    evaluated_as="linear probe",
    top5="probe_top5",
    reference=_chance,
)
_ENTRIES = (
    Measure("epoch", "Epoch", "Epochs that are done, from 1.", "", _TRAINER, "{:.0f}", logged=False),
    Measure("step", "Step", "Steps of the whole run.", "", _TRAINER, "{:.0f}"),
    Measure(
        "loss",
        "Loss",
        "Lower is better within one run, except for MoCo, whose negatives get harder as its dictionary fills and its "
        "keys become consistent. Losses of different frameworks, temperatures or batches cannot be compared.",
        "lower",
        _STATISTICS,
        name="loss",
        terminal=Terminal("loss {:.3f}", 0),
        tile=True,
        group="learning",
        compared=True,
    ),
    _PROBE,
    Measure(
        "probe_top5",
        "Linear probe, top-5",
        "Share of test images whose class is among the probe's first five answers: higher is better.",
        "higher",
        _ONLINE,
        PERCENT,
        "probe, top-5",
        tile=True,
        compared=True,
        rated=True,
        above_classes=5,
    ),
    replace(
        _PROBE,
        key="knn_top1",
        title="kNN, top-1",
        says="Share of test images whose nearest training images vote for the right class: higher is better; nothing "
        "is trained for it.",
        name="kNN, top-1",
        terminal=Terminal("kNN {:.2f} %", 2),
        column="kNN",
        card="kNN while training",
        evaluated_as="kNN",
        top5="",
        of_start="start_knn_top1",
    ),
    Measure(
        "start_knn_top1",
        "kNN of the start, top-1",
        "kNN accuracy before the first step, with the weights that the run began from: below it, training has made "
        "the encoder worse.",
        "",
        _TRAINER,
        PERCENT,
        "kNN of the start",
        group="learning",
        chart="accuracy",
    ),
    Measure(
        "held_out_knn_top1",
        "kNN of held-out training images",
        "Share of the held-out training images whose nearest other images vote for the right class: higher is better. "
        "It decides whether a run stops below its start; test images do not.",
        "higher",
        _START,
        PERCENT,
    ),
    Measure(
        "held_out_gained",
        "Held-out images gained",
        "Held-out training images that kNN gets right now and got wrong with the start: more is better.",
        "higher",
        _START,
        "{:.0f}",
    ),
    Measure(
        "held_out_lost",
        "Held-out images lost",
        "Held-out training images that kNN gets wrong now and got right with the start: fewer is better.",
        "lower",
        _START,
        "{:.0f}",
    ),
    Measure(
        "stopped",
        "Stopped",
        "Whether the run stopped here, because it fell below its start or because of the label-free judge.",
        "lower",
        _TRAINER,
        "{!s}",
        alarm="STOPPED itself",
    ),
    Measure(
        "judged_knn",
        "kNN forecast without labels",
        "The label-free judge's forecast: its level is vague, its trend on the same images less so.",
        "higher",
        _JUDGE,
        PERCENT,
    ),
    Measure(
        "judged_past",
        "Chance that it was better before",
        "By the label-free judge: how likely it is that an earlier encoder of this run was better. With "
        "--stop-by-judge, the run stops at 80 %.",
        "lower",
        _JUDGE,
        "{:.2f}",
    ),
    Measure("judged_best_step", "Best step by the judge", "The step with the highest forecast.", "", _JUDGE, "{:.0f}"),
    Measure("knn_k", "Neighbors", "Number of neighbors that vote with `--knn auto`.", "", _ONLINE, "{:.0f}"),
    Measure(
        "lr",
        "Learning rate",
        "At the epoch's last step: warm-up, then a cosine to 0; neither direction is good or bad.",
        "",
        _TRAINER,
        group="learning",
    ),
    Measure(
        "entropy",
        "Entropy of r_+",
        "How evenly the weight of a step is spread over its anchors, in nats. At log N all weigh the same, which is "
        "the purpose of tau_beta 1 or many keys; the lower it is, the fewer anchors decide the step.",
        "",
        _STATISTICS,
        "{:.6g}",
        terminal=Terminal("entropy of r_+ {:.3f}", 4),
        group="hardness",
        compared=True,
        reference=_even_weights,
    ),
    Measure(
        "hardest_tenth",
        "Share of the hardest tenth",
        "Share of the weight, and so of the gradient's scale, that the hardest tenth of the anchors of a step, rounded "
        "up, carries: near 1 a few anchors decide everything.",
        "",
        _STATISTICS,
        group="hardness",
        compared=True,
        reference=_even_share,
        remark=_even_share_in_words,
    ),
    Measure(
        "W_mean",
        "Mean weight W",
        "How hard the anchors are: near 1 negatives hide the positive, near 0 telling them apart is too easy to teach "
        "anything. Falls as the encoder learns. With another --weight than sigmoid: that weight, near 1.",
        "",
        _STATISTICS,
        group="hardness",
        compared=True,
    ),
    Measure(
        "W_spread",
        "Spread of W",
        "Standard deviation of W over the anchors of a step: 0 if all weigh the same; the larger it is, the more hard "
        "anchors outweigh easy ones. The dual temperature keeps it small.",
        "",
        _STATISTICS,
        group="hardness",
        compared=True,
    ),
    Measure(
        "alignment",
        "Alignment",
        "Mean squared distance of the unit features of two views of an image: lower is better, as long as uniformity "
        "does not rise toward 0 with it.",
        "lower",
        _ONLINE,
        group="features",
        compared=True,
    ),
    Measure(
        "uniformity",
        "Uniformity",
        "How evenly the features fill the sphere: lower is better; 0 means that all images look the same.",
        "lower",
        _ONLINE,
        group="features",
        compared=True,
    ),
    Measure(
        "spread",
        "Feature spread",
        f"About 1 if features spread evenly over all directions; below {COLLAPSED} the encoder has collapsed. Higher "
        "is better.",
        "higher",
        _ONLINE,
        terminal=Terminal("spread {:.2f}", 3),
        group="features",
        compared=True,
        reference=lambda run: Reference("collapsed", COLLAPSED),
    ),
    Measure(
        "effective_rank",
        "Effective rank",
        "In how many directions the features vary, weighted by how much: 1 is collapse onto one line. Higher is "
        "better.",
        "higher",
        _ONLINE,
        group="features",
        compared=True,
    ),
    Measure(
        "collapsed",
        "Collapsed",
        f"Whether the feature spread is below {COLLAPSED}.",
        "lower",
        _TRAINER,
        "{!s}",
        alarm="COLLAPSED: all images have nearly the same features",
    ),
    Measure(
        "images_per_second",
        "Images a second",
        "Training images a second, evaluations included: higher is faster.",
        "higher",
        _TRAINER,
        "{:,.0f}",
        "images a second",
        tile=True,
        compared=True,
    ),
    Measure("seconds", "Time", "Time since the start, pauses left out.", "", _TRAINER, DURATION, "time", tile=True),
)
_table = {entry.key: entry for entry in _ENTRIES}
