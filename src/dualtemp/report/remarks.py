"""Remarks beside a run's verdict: how its anchors are weighted, how the probe compares with kNN."""

import math

from dualtemp.report.standing import clear_difference, standings
from dualtemp.runs.evaluated_measures import START
from dualtemp.runs.metrics import accuracies
from dualtemp.runs.record import Facts, History, points

ONE_ANCHOR = 1 / 6  # of log N, the highest entropy: two of 64 anchors
FEW_ANCHORS = 0.5  # exp(entropy) / N below which fewer than half of the anchors count
TOO_EASY = 0.05  # mean W below which an InfoNCE step is a twentieth of what it could be
BEHIND = 5.0  # points of accuracy between kNN and probe


def remarks(history: History, facts: Facts) -> list[str]:
    """Return the remarks that apply, a sentence or two each."""
    found = (
        _above_start(facts),
        _weights(history, facts),
        _easy(history, facts),
        _probe_behind(history, facts),
        _rank(history),
    )
    return [remark for remark in found if remark is not None]


def _above_start(facts: Facts) -> str | None:
    found = next((one for one in standings(facts.beside) if one.encoder == START), None)
    if found is None or found.word != "beaten":
        return None
    one = max(found.measures, key=lambda one: (clear_difference(one, len(found.measures)), one.trained - one.other))
    gain = f"Above its start by {one.trained - one.other:.1f} points"
    return f"{gain}: {one.name} {one.trained:.1f} %, {one.other:.1f} % before training."


def _weights(history: History, facts: Facts) -> str | None:
    entropy = points(history, "entropy")
    if not entropy or facts.anchors < 2:
        return None
    N = facts.anchors
    count = math.exp(min(max(entropy[-1][1], 0.0), math.log(N)))
    evened = facts.weight.evened_by
    too_small, larger = (f" {evened} is too small.", f" A larger {evened} spreads it.") if evened else ("", "")
    used = "" if facts.weighted else " W is only measured; it does not enter this loss."
    if count < 2 and math.log(count) < ONE_ANCHOR * math.log(N):
        return (
            f"The entropy of r_+ is {entropy[-1][1]:.2f}, near 0 (at most log {N} = {math.log(N):.2f}): one of {N} "
            f"anchors has nearly all the weight of a step.{too_small}{used}"
        )
    if count < FEW_ANCHORS * N:
        return (
            f"The entropy of r_+ is {entropy[-1][1]:.2f} of log {N} = {math.log(N):.2f}, as if "
            f"{count:.{1 if count < 3 else 0}f} of {N} anchors shared the weight.{larger}{used}"
        )
    return (
        f"The entropy of r_+ is {entropy[-1][1]:.4f} of at most log {N} = {math.log(N):.4f}: "
        f"{'nearly all' if count > 0.99 * N else 'most'} anchors count equally.{used}"
    )


def _easy(history: History, facts: Facts) -> str | None:
    W = points(history, "W_mean")
    if not W or W[-1][1] > TOO_EASY or not (facts.weighted and facts.weight.is_hardness):
        return None
    return (
        f"The mean weight W is {W[-1][1]:.2g}: positives are so easy to find that little is left to learn. "
        "Stronger views (--recipe) or more negatives make the task harder."
    )


def _probe_behind(history: History, facts: Facts) -> str | None:
    """The probe learns while the encoder trains, with a learning rate of its own: it can lag far behind kNN."""
    probe, knn = (points(history, each.key) for each in accuracies())
    if not probe or not knn or knn[-1][1] - probe[-1][1] < BEHIND or facts.learns_from_labels:
        return None
    return (
        f"kNN ({knn[-1][1]:.1f} %) is ahead of the probe ({probe[-1][1]:.1f} %), which learns during training and has "
        "not caught up; `dualtemp evaluate` fits one on the final features."
    )


def _rank(history: History) -> str | None:
    rank = points(history, "effective_rank")
    if not rank or rank[-1][1] >= 2:
        return None
    return f"The effective rank is {rank[-1][1]:.2f}: the features lie nearly on one line."
