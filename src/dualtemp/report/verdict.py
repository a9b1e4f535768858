"""How a run does, in plain words with the reason: the first rule that fits, or that nothing is wrong, and remarks."""

from typing import Any

from dualtemp.quantities import duration
from dualtemp.report.accuracies import accuracy_of, fifths, seen
from dualtemp.report.remarks import remarks
from dualtemp.report.rules import NEEDED, RULES, Verdict
from dualtemp.runs.record import Facts, History, points


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
    missing = [name for name in NEEDED if name not in {one.encoder for one in facts.beside}]
    reason = _healthy_reason(history, facts)
    if not missing:
        return Verdict("healthy", "good", reason, remarks(history, facts))
    if accuracy_of(history)[1]:
        reason += (
            f" `dualtemp evaluate {facts.path}` tells whether that is more than {' or '.join(missing)} would give."
        )
    return Verdict("no trouble seen, not compared yet", "open", reason, remarks(history, facts))


def _healthy_reason(history: History, facts: Facts) -> str:
    key, accuracy = accuracy_of(history)
    spread = points(history, "spread")
    far = f"the feature spread is {spread[-1][1]:.2f}, far from collapse" if spread else "nothing points to a collapse"
    if len(accuracy) > 1:
        on = f" with {facts.test_images:,} test images" if facts.test_images else ""
        before, after, _ = fifths(accuracy)
        change = "gain" if after >= before else f"fall, by {before - after:.1f} points,"
        return (
            f"The {key} is {accuracy[-1][1]:.1f} %, its latest {change} is below what can be told apart{on} "
            f"({seen(facts, accuracy[-1][1]):.1f} points), and {far}."
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


def told(found: Verdict) -> dict[str, Any]:
    """A verdict for templates: with a mark, so that colour alone says nothing."""
    return {**found._asdict(), "mark": {"good": "✓", "bad": "✗", "open": "…"}[found.tone]}
