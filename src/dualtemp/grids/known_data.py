"""Match results to data by content, never by the name of a folder. Needs no torch unless a user's images are opened."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from dualtemp.data.sources.cache import cached_set
from dualtemp.data.sources.catalogue import CATALOGUE, named_set
from dualtemp.errors import UserError
from dualtemp.grids.plan import Plan
from dualtemp.grids.results import ITSELF, DataFacts, KnownData, Results, data_name, read_data_facts

SHORT = 8  # leading digits of a fingerprint that identify data in a results folder
EMBEDDED = "digits"  # free to open, and the only set that cannot be recognized by its facts


def known_facts(plan: Plan, results: Results, opened: Mapping[str, DataFacts] | None = None) -> dict[str, DataFacts]:
    """Return facts of the plan's data: of named sets from earlier results, of a user's own images by opening them.

    --data may also give the fingerprint, or its first digits, of data that has results here. opened: facts of data that
    is already open; if given, data that cannot be identified is left out, otherwise it raises UserError.
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


def is_local(word: str) -> bool:
    """Whether data can be opened without downloading it."""
    name = set_name(word)
    return name is None or CATALOGUE[name].download == 0 or cached_set(name) is not None


def describe_other_data(results: Results, facts: Mapping[str, DataFacts]) -> str:
    """Describe the data of the results if none of it matches `facts`; "" if some does, or if there are no results."""
    if any(known.facts in facts.values() for known in results.known_data):
        return ""
    return ", ".join(
        f"{known.facts.fingerprint[:SHORT]} {known.name} ({known.runs} runs)" for known in results.known_data
    )


def set_name(word: str) -> str | None:
    """Return the set that `word` names; None if it is a path or a fingerprint."""
    if word in CATALOGUE:
        return word
    entry = named_set(word)
    if entry is None or Path(word).name != word or word.startswith("~"):
        return None
    return entry.name


def is_fingerprint(word: str) -> bool:
    """Whether `word` is a fingerprint, or its first digits."""
    return re.fullmatch(rf"[0-9a-f]{{{SHORT},32}}", word) is not None and not Path(word).exists()


def display_name(word: str, facts: DataFacts | None, results: Results) -> str:
    """Name data on pages: a set by its name, anything else with the first digits of its fingerprint."""
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
                f"--data {word}: no set, folder or file has this name, and no results have this fingerprint"
            )
        return read_data_facts(word) if known else None
    found = {one.facts: one.runs for one in known if one.name == name and one.facts.normalised_as == name}
    if name == EMBEDDED and any(one.name == name for one in known):
        return read_data_facts(name)
    if len(found) > 1:
        runs = ", ".join(f"{facts.fingerprint[:SHORT]} ({count} runs)" for facts, count in found.items())
        raise UserError(
            f"there are results of several sets called {name}: {runs}; choose with --data {name}=FINGERPRINT"
        )
    return next(iter(found), None)


def _of_fingerprint(word: str, known: Sequence[KnownData]) -> DataFacts:
    found = {one.facts for one in known if one.facts.fingerprint.startswith(word)}
    # A named set can be given by its name. Among the user's own images, prefer those normalized as today.
    kinds = ({facts for facts in found if facts.normalised_as == kind} for kind in (ITSELF, ""))
    own = next((facts for facts in kinds if facts), found)
    if len(own) != 1:
        there = ", ".join(sorted({f"{one.facts.fingerprint[:SHORT]} {one.name}" for one in known})) or "none"
        few = "no data" if not own else "more than one set"
        raise UserError(f"--data {word}: {few} among the results here has this fingerprint; available: {there}")
    return next(iter(own))
