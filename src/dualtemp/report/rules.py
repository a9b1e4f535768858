"""The rules of the verdict, in the order of RULES: the first that applies gives the headline.

docs/pages.md gives the reason for each threshold.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from dualtemp.report.accuracies import (
    POINT,
    accuracy_name,
    accuracy_of,
    detectable_difference,
    fifths,
    guessing_limit,
    has_too_few_images,
)
from dualtemp.report.standing import Standing, Word, clear_difference, standings
from dualtemp.runs.evaluated_measures import BASELINES, START, encoder_title
from dualtemp.runs.metrics import accuracies
from dualtemp.runs.record import Beside, Facts, History, points
from dualtemp.runs.thresholds import COLLAPSED, clearly_past

LOSS_STILL = 1e-3  # share of the loss: a run whose loss never leaves this band learns nothing
RISES = 3  # in a row: by chance four values come in this order once in 24 times
LOSS_FALLS = 0.05  # share of the whole fall: a larger fall in the last fifth means that the loss has not leveled out
RECOVERED = 1.2  # times the lowest spread: above this it is rising again
NEEDED = BASELINES[:2]  # raw pixels and color histogram: a healthy encoder must beat them


class Verdict(NamedTuple):
    """headline: a few words; tone: their color; reason: a sentence with figures; remarks: further sentences."""

    headline: str
    tone: Literal["good", "bad", "open"]
    reason: str
    remarks: Sequence[str] = ()


def _collapsed(history: History, facts: Facts) -> Verdict | None:
    spread = points(history, "spread")
    if not spread or spread[-1][1] >= COLLAPSED:
        return None
    since = next(
        (e for (e, _), (_, before) in zip(spread[:0:-1], spread[-2::-1], strict=True) if before >= COLLAPSED), None
    )
    reason = (
        f"The feature spread is {spread[-1][1]:.3g}, below {COLLAPSED}: all images have nearly the same features. "
        f"{_against_collapse(facts)}"
    )
    return Verdict("collapsed" if since is None else f"collapsed since epoch {since}", "bad", reason)


def _collapsing(history: History, facts: Facts) -> Verdict | None:
    """More than half way, in powers of ten, from the highest spread down to collapse, and not recovering."""
    spread = points(history, "spread")
    if len(spread) < 2:
        return None
    top = max(range(len(spread)), key=lambda i: spread[i][1])
    since, last = spread[top:], spread[-1][1]
    if len(since) < 2 or last >= math.sqrt(since[0][1] * COLLAPSED) or last > RECOVERED * min(v for _, v in since):
        return None
    reason = (
        f"The feature spread has fallen from {since[0][1]:.3g} (epoch {since[0][0]}) to {last:.3g}; {COLLAPSED} means "
        f"collapse. Images look more and more the same. {_against_collapse(facts)}"
    )
    return Verdict(f"collapsing since epoch {since[1][0]}", "bad", reason)


def _at_chance(history: History, facts: Facts) -> Verdict | None:
    """Guessing could reach both accuracies of the last evaluation; an untrained encoder does better."""
    last = {accuracy_name(each): found[-1][1] for each in accuracies() if (found := points(history, each.key))}
    limit = guessing_limit(facts)
    if limit is None or not last or max(last.values()) > limit:
        return None
    measured = " and the ".join(f"{name} is {value:.1f} %" for name, value in last.items())
    reason = (
        f"The {measured}, no better than always naming the most common of {facts.classes} classes "
        f"({100 * (facts.chance or 0):.3g} %); even an untrained encoder does better. Check the labels "
        f"and the views (`dualtemp data {facts.data} --show`), and try a lower --lr."
    )
    return Verdict("not learning: at chance", "bad", reason)


def _loss_still(history: History, facts: Facts) -> Verdict | None:
    loss = [value for _, value in points(history, "loss")]
    if len(loss) < 3 or max(loss) - min(loss) > LOSS_STILL * max(map(abs, loss)):
        return None
    reason = (
        f"The loss has stayed at {loss[-1]:.4g}, within {100 * LOSS_STILL:g} %, for all {len(loss)} epochs. Try a "
        "higher --lr; a smaller --tau-alpha makes the loss more sensitive."
    )
    return Verdict("not learning: the loss does not move", "bad", reason)


def _worse(history: History, facts: Facts) -> Verdict | None:
    """The last two evaluations are both clearly below the best one."""
    key, accuracy = accuracy_of(history)
    if len(accuracy) < 3:
        return None
    best_epoch, best = max(accuracy, key=lambda point: point[1])
    last = accuracy[-1][1]
    if max(value for _, value in accuracy[-2:]) > best - detectable_difference(facts, best):
        return None
    loss = points(history, "loss")
    falls = bool(loss) and loss[-1][1] < dict(loss).get(best_epoch, -math.inf)
    reason = (
        f"The {key} was {best:.1f} % after epoch {best_epoch}, and is {last:.1f} % now"
        f"{', although the loss still falls: what it rewards no longer helps to separate classes' if falls else ''}. "
        "Try a lower --lr or stronger views (--recipe); the checkpoints of the best epoch are gone."
    )
    return Verdict(f"getting worse since epoch {best_epoch}", "bad", reason)


def _too_early(history: History, facts: Facts) -> Verdict | None:
    if len(history) > 1:
        return None
    return Verdict("too early to tell", "open", "Only one epoch is done; a trend takes two.")


def _improving(history: History, facts: Facts) -> Verdict | None:
    """The mean of the last fifth of the evaluations is clearly better than that of the fifth before."""
    key, accuracy = accuracy_of(history)
    more = _more_epochs(history, facts)
    if len(accuracy) > 1:
        before, after, when = fifths(accuracy)
        rises = len(accuracy) > RISES and all(a < b for (_, a), (_, b) in pairwise(accuracy[-RISES - 1 :]))
        if after - before > detectable_difference(facts, after):
            return Verdict("still improving", "good", f"The {key} has gained {after - before:.1f} points {when}.{more}")
        gained = accuracy[-1][1] - accuracy[-RISES - 1][1] if rises else 0.0
        if accuracy[-1][1] - before > POINT and gained > detectable_difference(facts, after):
            reason = f"The {key} has risen three times in a row, by {gained:.1f} points in all.{more}"
            return Verdict("still improving", "good", reason)
        return None
    loss = points(history, "loss")
    values = [value for _, value in loss]
    if len(loss) > 1:
        before, after, when = fifths(loss)
        if before - after > LOSS_FALLS * (max(values) - min(values)) and before - after > LOSS_STILL * abs(before):
            unmeasured = "No accuracy was measured yet" if facts.classes else "There are no labels to measure with"
            measured = f"The {key} was measured once" if accuracy else unmeasured
            reason = f"{measured}; the loss still falls: {before:.4g} to {after:.4g} {when}."
            return Verdict("still improving", "good", reason + more)
    return None


def _not_better(history: History, facts: Facts) -> Verdict | None:
    """`dualtemp evaluate` measured baselines, and the encoder does not clearly beat all of them."""
    found = [one for one in standings(facts.beside) if one.encoder != START]
    more = " Try more images, more epochs or another --lr." + _more_epochs(history, facts, "To continue")
    rules: tuple[tuple[set[Word], str, Literal["bad", "open"], str], ...] = (
        ({"better", "level"}, "has learned little: no better than {}", "bad", f"show no gain.{more}"),
        ({"mixed"}, "better than {} by one measure, worse by another", "open", f"show a gain and a loss.{more}"),
        ({"open"}, "too few images to tell", "open", "are too few to show whether it is better than {}."),
    )
    for words, headline, tone, said in rules:
        these = [one for one in found if one.word in words]
        if these:
            names = " or ".join(encoder_title(one.encoder) for one in these)
            reason = f"`dualtemp evaluate` found: {_rivals(these)}. {_test_images(these)} {said.format(names)}"
            return Verdict(headline.format(names), tone, reason)
    return None


def _not_above_start(history: History, facts: Facts) -> Verdict | None:
    """`dualtemp evaluate` has measured what the run began from, and the run is not clearly above it."""
    found = next((one for one in standings(facts.beside) if one.encoder == START), None)
    if found is None or found.word == "beaten":
        return None
    one = widest_gap(found)
    gap, images = one.other - one.trained, _test_images([found])
    reason = f"`dualtemp evaluate` found: {one.name} {one.trained:.1f} %, its start as it was {one.other:.1f} %."
    if found.word == "better":
        stop = f" {images} show the loss. Stop here; a lower --lr or fewer epochs may keep more of it."
        return Verdict(f"below its start by {gap:.1f} points: use the start", "bad", reason + stop)
    if found.word == "level":
        return Verdict("no better than its start: use the start", "open", f"{reason} {images} show no gain of a point.")
    if found.word == "mixed":
        return Verdict("above its start by one measure, below by another", "open", reason)
    return Verdict(
        "too few images to tell it from its start", "open", f"{reason} {images} do not show which is better."
    )


def _stopped(history: History, facts: Facts) -> Verdict | None:
    """The run has ended itself, because kNN of held-out training images fell below the start's, or by the judge."""
    last = history[-1]
    if not last.get("stopped"):
        return None
    if clearly_past(last):
        reason = (
            f"Without labels, by the look of its features, the encoder of step {last['judged_best_step']} is better "
            f"with a chance of {last['judged_past']:.0%}. The judge is often wrong: with a few labels, `dualtemp "
            f"evaluate {facts.path} --labels FILE.csv` knows more. The encoder in the folder is that of the "
            "measurement before."
        )
        return Verdict(
            f"stopped after epoch {last['epoch']}: the judge rated an earlier encoder higher", "open", reason
        )
    reason = (
        f"After epoch {last['epoch']} kNN got {last.get('held_out_lost', 0):,} held-out images wrong that were right "
        f"with the start, and {last.get('held_out_gained', 0):,} right that were wrong. The encoder in the folder is "
        f"that of the measurement before; `dualtemp evaluate {facts.path}` compares it with the start. A lower --lr, "
        "more --freeze or an --anchor may keep more of what the start knows."
    )
    return Verdict(f"stopped after epoch {last['epoch']}: it fell below its start", "open", reason)


def _below_start(history: History, facts: Facts) -> Verdict | None:
    """kNN is clearly below what it was before the first step, and `dualtemp evaluate` has not compared the two yet."""
    before, knn = points(history, "start_knn_top1"), points(history, "knn_top1")
    if not before or not knn or any(one.encoder == START for one in facts.beside):
        return None
    start, last = before[-1][1], knn[-1][1]
    if start - last <= detectable_difference(facts, start):
        return None
    reason = (
        f"kNN was {start:.1f} % before the first step, and is {last:.1f} % now. Stop here; a lower --lr, more "
        f"--freeze, an --anchor or --stop-below-start may keep more of it. `dualtemp evaluate {facts.path}` compares "
        "image by image."
    )
    return Verdict(f"below its start by {start - last:.1f} points: use the start", "bad", reason)


def widest_gap(found: Standing) -> Beside:
    """The measure by which the two differ most clearly; of those that cannot be told apart, the first."""
    measures = len(found.measures)
    clear = [one for one in found.measures if clear_difference(one, measures)]
    return max(clear, key=lambda one: abs(one.trained - one.other)) if clear else found.measures[0]


def _rivals(these: Sequence[Standing]) -> str:
    """Name one measure of each baseline, and by how many measures it is ahead; the page's table has all of them."""
    texts: list[str] = []
    for each in these:
        one = next((one for one in each.measures if one.name == "linear probe"), each.measures[0])
        ahead, count = sum(one.other > one.trained for one in each.measures), len(each.measures)
        counted = f" (ahead by {ahead} of {count} measures)" if count > 1 else ""
        own = f"{one.name} {one.trained:.1f} %, "
        said = "" if texts and texts[0].startswith(own) else own
        texts.append(f"{said}{encoder_title(one.encoder)} {one.other:.1f} %{counted}")
    return ", ".join(texts)


def _test_images(these: Sequence[Standing]) -> str:
    images = sorted({one.images for each in these for one in each.measures if one.images})
    if not images:
        return "The test images"
    return f"{images[0]:,}{f' to {images[-1]:,}' if len(images) > 1 else ''} test images"


def _fallen(history: History, facts: Facts) -> Verdict | None:
    """Probe or kNN is clearly below its first value."""
    for each in accuracies():
        found = points(history, each.key)
        if len(found) > 1 and found[0][1] - found[-1][1] > detectable_difference(facts, found[0][1]):
            (epoch, first), (_, last), name = found[0], found[-1], accuracy_name(each)
            reason = f"The {name} was {first:.1f} % after epoch {epoch}, and is {last:.1f} % now. Try a lower --lr."
            return Verdict(f"worse than after epoch {epoch}", "bad", reason)
    return None


def _too_few_images(history: History, facts: Facts) -> Verdict | None:
    """So few test images that only a large change could be detected."""
    key, accuracy = accuracy_of(history)
    if not accuracy or not has_too_few_images(facts, accuracy[-1][1]) or _beats_all(facts):
        return None
    reason = (
        f"The {key} is {accuracy[-1][1]:.1f} % on {facts.test_images:,} test images. So few images only show changes "
        f"of at least {detectable_difference(facts, accuracy[-1][1]):.1f} points, and none was that large. `dualtemp "
        f"evaluate {facts.path}` compares image by image, which shows more; so would more test images."
    )
    return Verdict("too few images to tell", "open", reason)


def _beats_all(facts: Facts) -> bool:
    found = {one.encoder: one.word for one in standings(facts.beside)}
    return all(found.get(name) == "beaten" for name in NEEDED)


def _no_gain(history: History, facts: Facts) -> Verdict | None:
    """The accuracy ends below its first value, or clearly below the preceding evaluations."""
    key, accuracy = accuracy_of(history)
    if len(accuracy) < 2:
        return None
    (epoch, first), (_, last) = accuracy[0], accuracy[-1]
    if last < first:
        reason = f"The {key} was {first:.1f} % after epoch {epoch}, and is {last:.1f} % now."
        return Verdict(f"has learned little: no better than after epoch {epoch}", "open", reason)
    before, after, when = fifths(accuracy)
    if before - after > detectable_difference(facts, before):
        reason = f"The {key} has lost {before - after:.1f} points {when}; the next one would show whether that lasts."
        return Verdict("lower at the end than before", "open", reason + _more_epochs(history, facts, "To continue"))
    return None


def _more_epochs(history: History, facts: Facts, why: str = "More epochs would probably help") -> str:
    """Return the command that extends a finished run; "" if it has not finished."""
    finished = len(history) >= facts.epochs
    return f" {why}: `dualtemp resume {facts.path} --epochs {2 * facts.epochs}`." if finished else ""


def _against_collapse(facts: Facts) -> str:
    return facts.advice_on_collapse or (
        "Try a lower --lr, more --warmup-epochs or --clip-gradient 1, and check the views "
        f"(`dualtemp data {facts.data} --show`)."
    )


RULES = (
    _stopped,  # first: what the others would say is about an encoder that the run threw away
    _collapsed,
    _collapsing,
    _at_chance,
    _loss_still,
    _worse,
    _below_start,
    _too_early,
    _not_above_start,
    _not_better,
    _fallen,
    _improving,
    _too_few_images,
    _no_gain,
)
