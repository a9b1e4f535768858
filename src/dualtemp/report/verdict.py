"""How a run does, in plain words with the reason: rules over its epochs, read from top to bottom.

The first rule that fits gives the headline; what else is worth knowing comes as remarks. docs/pages.md tells why each
threshold is what it is.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from dualtemp.report.accuracies import ACCURACIES, ERRORS, POINT, accuracy_of, error, error_of, fifths, guessed
from dualtemp.report.remarks import remarks
from dualtemp.report.run_record import Beside, Facts, History, points
from dualtemp.training.display import duration
from dualtemp.training.thresholds import COLLAPSED

LOSS_STILL = 1e-3  # of the loss: a run whose loss never leaves this band learns nothing
RISES = 3  # in a row: by chance four values come in this order once in 24 times
LOSS_FALLS = 0.05  # of the whole fall, in the last fifth of the epochs: it has not levelled out
RECOVERED = 1.2  # times the lowest spread: it rises again


class Verdict(NamedTuple):
    """headline: a few words; tone: how to colour them; reason: a sentence with figures; remarks: more sentences."""

    headline: str
    tone: Literal["good", "bad", "open"]
    reason: str
    remarks: Sequence[str] = ()


def verdict(history: History, facts: Facts, word: str = "done", why: str = "") -> Verdict:
    """The verdict on a run that is "running", "done", "interrupted" or "failed" (why: the reason)."""
    found = health(history, facts)
    now = history[-1]["epoch"] if history else 0
    if word == "failed":
        reason = f"After epoch {now} of {facts.epochs}." if history else "Before the end of its first epoch."
        return found._replace(headline=f"failed: {why}" if why else "failed", tone="bad", reason=reason)
    place = f"epoch {now} of {facts.epochs}"
    if now >= facts.epochs and word != "failed":  # the last page is written before the run lets go of its folder
        return found
    if word == "running":
        left = _left(history, facts)
        if found.tone == "bad":
            return found._replace(reason=f"{found.reason} Still running, {place}{left}.")
        so_far = f"So far: {found.headline}. {found.reason}" if history else "No epoch is over yet."
        return found._replace(headline=f"running, {place}{left}", tone="open", reason=so_far)
    if word == "interrupted":
        stopped = f"interrupted at {place}" if history else "interrupted in its first epoch"
        reason = f"`dualtemp resume {facts.path}` goes on from its last checkpoint."
        if history:
            reason += f" Until then: {found.headline}. {found.reason}"
        return found._replace(headline=stopped, tone="bad" if found.tone == "bad" else "open", reason=reason)
    return found


def health(history: History, facts: Facts) -> Verdict:
    """How the encoder does, whatever became of the run."""
    if not history:
        return Verdict("no epoch yet", "open", "Nothing has been measured.")
    for rule in RULES:
        found = rule(history, facts)
        if found is not None:
            return found._replace(remarks=remarks(history, facts))
    return Verdict("healthy", "good", _healthy_reason(history, facts), remarks(history, facts))


def _collapsed(history: History, facts: Facts) -> Verdict | None:
    spread = points(history, "spread")
    if not spread or spread[-1][1] >= COLLAPSED:
        return None
    since = next(
        (e for (e, _), (_, before) in zip(spread[:0:-1], spread[-2::-1], strict=True) if before >= COLLAPSED), None
    )
    reason = (
        f"The feature spread is {spread[-1][1]:.3g}, below {COLLAPSED}: all images have nearly the same features, and "
        f"nothing can be told from them. {_against_collapse(facts)}"
    )
    return Verdict("collapsed" if since is None else f"collapsed since epoch {since}", "bad", reason)


def _collapsing(history: History, facts: Facts) -> Verdict | None:
    """More than half of the way, in powers of ten, from the highest spread down to collapse, and not coming back."""
    spread = points(history, "spread")
    if len(spread) < 2:
        return None
    top = max(range(len(spread)), key=lambda i: spread[i][1])
    since, last = spread[top:], spread[-1][1]
    if len(since) < 2 or last >= math.sqrt(since[0][1] * COLLAPSED) or last > RECOVERED * min(v for _, v in since):
        return None
    reason = (
        f"The feature spread has fallen from {since[0][1]:.3g} (epoch {since[0][0]}) to {last:.3g}, and {COLLAPSED} is "
        f"collapse: images look more and more the same. {_against_collapse(facts)}"
    )
    return Verdict(f"collapsing since epoch {since[1][0]}", "bad", reason)


def _at_chance(history: History, facts: Facts) -> Verdict | None:
    """Both accuracies of the last evaluation could be had by guessing; an untrained encoder does better."""
    last = [found[-1][1] for key in ("probe_top1", "knn_top1") if (found := points(history, key))]
    limit = guessed(facts)
    if limit is None or not last or max(last) > limit:
        return None
    reason = (
        f"Probe and kNN are at {' and '.join(f'{value:.1f} %' for value in last)}, no better than guessing among "
        f"{facts.classes} classes ({100 / facts.classes:.3g} %); even an untrained encoder does better. Look at the "
        f"labels and at the views (`dualtemp data {facts.data} --show`), and try a lower --lr."
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
    if max(value for _, value in accuracy[-2:]) > best - max(POINT, ERRORS * error(facts, best)):
        return None
    loss = points(history, "loss")
    falls = bool(loss) and loss[-1][1] < dict(loss).get(best_epoch, -math.inf)
    reason = (
        f"The {key} was {best:.1f} % after epoch {best_epoch}, and is {last:.1f} % now"
        f"{', though the loss still falls: what it rewards no longer helps to tell classes apart' if falls else ''}. "
        "Try a lower --lr or stronger views (--recipe); the checkpoints of the best epoch are gone."
    )
    return Verdict(f"getting worse since epoch {best_epoch}", "bad", reason)


def _too_early(history: History, facts: Facts) -> Verdict | None:
    if len(history) > 1:
        return None
    return Verdict("too early to tell", "open", "One epoch is over; a direction takes two.")


def _improving(history: History, facts: Facts) -> Verdict | None:
    """The mean of the last fifth of the evaluated epochs is clearly better than that of the fifth before."""
    key, accuracy = accuracy_of(history)
    more = _more_epochs(history, facts)
    if len(accuracy) > 1:
        before, after, when = fifths(accuracy)
        rises = len(accuracy) > RISES and all(a < b for (_, a), (_, b) in pairwise(accuracy[-RISES - 1 :]))
        if after - before > max(POINT, error(facts, after)):
            return Verdict("still improving", "good", f"The {key} has gained {after - before:.1f} points {when}.{more}")
        if rises and accuracy[-1][1] - before > POINT:
            gained = accuracy[-1][1] - accuracy[-RISES - 1][1]
            reason = f"The {key} has risen three times in a row, by {gained:.1f} points in all.{more}"
            return Verdict("still improving", "good", reason)
        return None
    loss = points(history, "loss")
    values = [value for _, value in loss]
    if len(loss) > 1:
        before, after, when = fifths(loss)
        if before - after > LOSS_FALLS * (max(values) - min(values)) and before - after > LOSS_STILL * abs(before):
            reason = (
                f"There are no labels to measure with, and the loss still falls: {before:.4g} to {after:.4g} {when}."
            )
            return Verdict("still improving", "good", reason + more)
    return None


def _learned_little(history: History, facts: Facts) -> Verdict | None:
    """`dualtemp evaluate` has measured another encoder too, and by no measure is the trained one clearly better."""
    if not facts.beside or any(_clearly_above(one) for one in facts.beside):
        return None
    measured = "; ".join(f"{one.name} {one.trained:.1f} %, {one.encoder} {one.other:.1f} %" for one in facts.beside)
    least, images = min(facts.beside, key=lambda one: one.images).images, max(one.images for one in facts.beside)
    on = f"{images:,}" if least == images else f"{least:,} to {images:,}"
    others = " or ".join(dict.fromkeys(one.encoder for one in facts.beside))
    reason = (
        f"`dualtemp evaluate` found: {measured}. With {on} test images that is no clear gain."
        if images
        else (f"`dualtemp evaluate` found: {measured}.")
    )
    reason += " Try more images, more epochs or another --lr." + _more_epochs(history, facts, "To go on")
    return Verdict(f"has learned little: no better than {others}", "bad", reason)


def _clearly_above(one: Beside) -> bool:
    return one.trained - one.other > error_of(one.images, max(one.trained, one.other))


def _fallen(history: History, facts: Facts) -> Verdict | None:
    """Probe or kNN is clearly below its first value."""
    for key, name in ACCURACIES.items():
        found = points(history, key)
        if len(found) > 1 and found[0][1] - found[-1][1] > max(POINT, error(facts, found[0][1])):
            (epoch, first), (_, last) = found[0], found[-1]
            reason = f"The {name} was {first:.1f} % after epoch {epoch}, and is {last:.1f} % now. Try a lower --lr."
            return Verdict(f"worse than after epoch {epoch}", "bad", reason)
    return None


def _no_gain(history: History, facts: Facts) -> Verdict | None:
    """The accuracy ends below its first value, or clearly below the evaluations before."""
    key, accuracy = accuracy_of(history)
    if len(accuracy) < 2:
        return None
    (epoch, first), (_, last) = accuracy[0], accuracy[-1]
    if last < first:
        reason = f"The {key} was {first:.1f} % after epoch {epoch}, and is {last:.1f} % now."
        return Verdict(f"has learned little: no better than after epoch {epoch}", "open", reason)
    before, after, when = fifths(accuracy)
    if before - after > max(POINT, error(facts, before)):
        reason = f"The {key} has lost {before - after:.1f} points {when}; whether that lasts, the next would tell."
        return Verdict("lower at the end than before", "open", reason + _more_epochs(history, facts, "To go on"))
    return None


def _more_epochs(history: History, facts: Facts, why: str = "More epochs would probably help") -> str:
    """The command that goes on with a run that is through."""
    through = len(history) >= facts.epochs
    return f" {why}: `dualtemp resume {facts.path} --epochs {2 * facts.epochs}`." if through else ""


RULES = (
    _collapsed,
    _collapsing,
    _at_chance,
    _loss_still,
    _worse,
    _too_early,
    _learned_little,
    _fallen,
    _improving,
    _no_gain,
)


def _healthy_reason(history: History, facts: Facts) -> str:
    key, accuracy = accuracy_of(history)
    spread = points(history, "spread")
    far = f"the feature spread is {spread[-1][1]:.2f}, far from collapse" if spread else "nothing points to a collapse"
    if len(accuracy) > 1:
        seen = max(POINT, error(facts, accuracy[-1][1]))
        on = f" with {facts.test_images:,} test images" if facts.test_images else ""
        before, after, _ = fifths(accuracy)
        change = "gain" if after >= before else f"fall, by {before - after:.1f} points,"
        return (
            f"The {key} is {accuracy[-1][1]:.1f} %, its latest {change} is below what can be told apart{on} "
            f"({seen:.1f} points), and {far}."
        )
    if accuracy:
        return f"The {key} is {accuracy[-1][1]:.1f} %, and {far}."
    return f"The loss no longer clearly falls, and {far}. Without labels nobody can say how good the features are."


def _left(history: History, facts: Facts) -> str:
    """How long the rest takes, at the pace so far."""
    seconds, done = points(history, "seconds"), len(history)
    if not seconds or done >= facts.epochs:
        return ""
    return f", about {duration(seconds[-1][1] / max(1, seconds[-1][0]) * (facts.epochs - seconds[-1][0]))} left"


def _against_collapse(facts: Facts) -> str:
    return facts.advice_on_collapse or (
        "Try a lower --lr, more --warmup-epochs or --clip-gradient 1, and look at the views "
        f"(`dualtemp data {facts.data} --show`)."
    )


def told(found: Verdict) -> dict[str, Any]:
    """A verdict for templates: with a mark, so that colour alone says nothing."""
    return {**found._asdict(), "mark": {"good": "✓", "bad": "✗", "open": "…"}[found.tone]}
