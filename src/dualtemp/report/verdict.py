"""The verdict on a run, in plain words with the reason: the first rule that applies, or none, and remarks."""

from typing import Any

from dualtemp.quantities import duration
from dualtemp.report.accuracies import accuracy_of, detectable_difference, fifths
from dualtemp.report.remarks import remarks
from dualtemp.report.rules import NEEDED, RULES, Verdict
from dualtemp.runs.evaluated_measures import encoder_title
from dualtemp.runs.record import Facts, History, points


def verdict(history: History, facts: Facts, word: str = "done", why: str = "") -> Verdict:
    """Judge a run whose status `word` is "running", "done", "interrupted" or "failed" (why: the reason)."""
    found = health(history, facts)
    now = history[-1]["epoch"] if history else 0
    if word == "failed":
        reason = f"After epoch {now} of {facts.epochs}." if history else "Before the end of its first epoch."
        return found._replace(headline=f"failed: {why}" if why else "failed", tone="bad", reason=reason)
    place = f"epoch {now} of {facts.epochs}"
    if now >= facts.epochs:  # the last page is written before the run releases its folder
        return found
    if word == "running":
        left = _left(history, facts)
        if found.tone == "bad":
            return found._replace(reason=f"{found.reason} Still running, {place}{left}.")
        so_far = f"So far: {found.headline}. {found.reason}" if history else "No epoch is done yet."
        return found._replace(headline=f"running, {place}{left}", tone="open", reason=so_far)
    if word == "interrupted":
        stopped = f"interrupted at {place}" if history else "interrupted in its first epoch"
        reason = f"`dualtemp resume {facts.path}` continues from its last checkpoint."
        if history:
            reason += f" Until then: {found.headline}. {found.reason}"
        return found._replace(headline=stopped, tone="bad" if found.tone == "bad" else "open", reason=reason)
    return found


def health(history: History, facts: Facts) -> Verdict:
    """Judge the encoder, whatever the run's status."""
    if not history:
        return Verdict("no epoch yet", "open", "Nothing has been measured.")
    for rule in RULES:
        found = rule(history, facts)
        if found is not None:
            return found._replace(remarks=remarks(history, facts))
    missing = [encoder_title(name) for name in NEEDED if name not in {one.encoder for one in facts.beside}]
    reason = _healthy_reason(history, facts)
    if not missing:
        return Verdict("healthy", "good", reason, remarks(history, facts))
    if accuracy_of(history)[1]:
        reason += f" `dualtemp evaluate {facts.path}` shows whether that is better than {' or '.join(missing)}."
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
            f"The {key} is {accuracy[-1][1]:.1f} %, its latest {change} is too small to be detected{on} "
            f"({detectable_difference(facts, accuracy[-1][1]):.1f} points), and {far}."
        )
    if accuracy:
        return f"The {key} is {accuracy[-1][1]:.1f} %, and {far}."
    silent = (
        "No accuracy was measured yet." if facts.classes else "Without labels, nothing says how good the features are."
    )
    return f"The loss no longer clearly falls, and {far}. {silent}"


def _left(history: History, facts: Facts) -> str:
    """Return the time left at the current pace, as a phrase."""
    seconds, done = points(history, "seconds"), len(history)
    if not seconds or done >= facts.epochs:
        return ""
    return f", about {duration(seconds[-1][1] / max(1, seconds[-1][0]) * (facts.epochs - seconds[-1][0]))} left"


def verdict_context(found: Verdict) -> dict[str, Any]:
    """Return a verdict for templates, with a mark, so that its tone does not depend on color alone."""
    return {**found._asdict(), "mark": {"good": "✓", "bad": "✗", "open": "…"}[found.tone]}
