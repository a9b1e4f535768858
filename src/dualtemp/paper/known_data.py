"""Which results belong to which data: by the content that a key knows, never by the name of a folder. Needs no torch
unless images of one's own are opened."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from dualtemp.data.sources.cache import cached_set
from dualtemp.data.sources.catalogue import CATALOGUE, named_set
from dualtemp.errors import UserError
from dualtemp.paper.plan import Plan
from dualtemp.paper.results import ITSELF, DataFacts, KnownData, Results, data_name, opened_facts

SHORT = 8  # digits of a fingerprint that are enough to name data in a results folder
EMBEDDED = "digits"  # opened at no cost, and the one set that facts do not name


def known_facts(plan: Plan, results: Results, opened: Mapping[str, DataFacts] | None = None) -> dict[str, DataFacts]:
    """Facts of the plan's sets: of named ones as far as earlier results tell them, of one's own images by opening them.

    A word of --data may also be the fingerprint, or its first digits, of data that results here are of. opened: facts
    of what has been opened already; what else cannot be told is then left out, and raises UserError otherwise.
    """
    found: dict[str, DataFacts] = dict(opened or {})
    for word in dict.fromkeys(run.settings["data"] for run in plan.runs.values()):
        if word in found:
            continue
        with nullcontext() if opened is None else suppress(UserError):
            facts = _facts(word, results.known_data)
            if facts is not None:
                found[word] = facts
    return found


def is_here(word: str) -> bool:
    """Whether data can be opened without fetching it."""
    name = set_name(word)
    return name is None or CATALOGUE[name].download == 0 or cached_set(name) is not None


def other_data(results: Results, facts: Mapping[str, DataFacts]) -> str:
    """The data of the results here, in words, if none of them is of these; "" if some are, or there are no results."""
    if any(known.facts in facts.values() for known in results.known_data):
        return ""
    return ", ".join(
        f"{known.facts.fingerprint[:SHORT]} {known.name} ({known.runs} runs)" for known in results.known_data
    )


def set_name(word: str) -> str | None:
    """The set that a word names; None if it is a path or a fingerprint."""
    if word in CATALOGUE:
        return word
    entry = named_set(word)
    if entry is None or Path(word).name != word or word.startswith("~"):
        return None
    return entry.name


def is_fingerprint(word: str) -> bool:
    """Whether a word stands for data by its content."""
    return re.fullmatch(rf"[0-9a-f]{{{SHORT},32}}", word) is not None and not Path(word).exists()


def shown_data(word: str, facts: DataFacts | None, results: Results) -> str:
    """What pages call data: a set by its name, anything else with the first digits of its fingerprint."""
    name = set_name(word)
    if name is not None or facts is None:
        return name or data_name(word)
    names = [known.name for known in results.known_data if known.facts == facts]
    own = names[0] if is_fingerprint(word) and names else data_name(word)
    return f"{own} ({facts.fingerprint[:SHORT]})"


def _facts(word: str, known: Sequence[KnownData]) -> DataFacts | None:
    if is_fingerprint(word):
        return _of_fingerprint(word, known)
    name = set_name(word)
    if name is None:
        if not os.path.exists(os.path.expanduser(word)):
            raise UserError(
                f"--data {word}: no set, folder or file is called so, and no data of results has this fingerprint"
            )
        return opened_facts(word) if known else None
    found = {one.facts: one.runs for one in known if one.name == name and one.facts.normalised_as == name}
    if name == EMBEDDED and any(one.name == name for one in known):
        return opened_facts(name)
    if len(found) > 1:
        runs = ", ".join(f"{facts.fingerprint[:SHORT]} ({count} runs)" for facts, count in found.items())
        raise UserError(f"results of several sets called {name} are here: {runs}; say which: --data {name}=FINGERPRINT")
    return next(iter(found), None)


def _of_fingerprint(word: str, known: Sequence[KnownData]) -> DataFacts:
    found = {one.facts for one in known if one.facts.fingerprint.startswith(word)}
    # A named set can be had by its name; of one's own images come first those that were normalised as they are now.
    kinds = ({facts for facts in found if facts.normalised_as == kind} for kind in (ITSELF, ""))
    own = next((facts for facts in kinds if facts), found)
    if len(own) != 1:
        there = ", ".join(sorted({f"{one.facts.fingerprint[:SHORT]} {one.name}" for one in known})) or "none"
        few = "no data" if not own else "more than one set"
        raise UserError(f"--data {word}: {few} of the results here has this fingerprint; there are: {there}")
    return next(iter(own))
