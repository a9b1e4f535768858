"""RUN/environment.json: read it, and refuse an entry that is not of the kind that was written. Needs no torch."""

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dualtemp.errors import UserError
from dualtemp.machine import MOST_THREADS
from dualtemp.models.model_input import INTERPOLATIONS

SHOWN = 40  # characters of a wrong value


class Kind(NamedTuple):
    """The kind of an entry, in words, and whether a value is of it."""

    expected: str
    accepts: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _is_list(value: Any, accepts: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(accepts, value))


def _is_pair(value: Any) -> bool:
    return _is_list(value, _is_number) and len(value) == 2 and value[0] < value[1]


def _whole(least: int, most: float = math.inf) -> Kind:
    limits = f"of at least {least}" if most == math.inf else f"from {least} to {most:,}"
    return Kind(f"a whole number {limits}", lambda value: type(value) is int and least <= value <= most)


TEXT = Kind("a text", lambda value: isinstance(value, str))
NUMBERS = Kind("a list of numbers", lambda value: _is_list(value, _is_number))
# The entries that are computed with; all others are only shown or compared.
PART = {"images": _whole(0), "fingerprint": TEXT, "commonest": _whole(1)}
INPUT = {
    "channels": _whole(1),
    "size": _whole(1),
    "mean": NUMBERS,
    "std": NUMBERS,
    "interpolation": Kind(" or ".join(map(repr, INTERPOLATIONS)), lambda value: value in INTERPOLATIONS),
    "crop": Kind("a number above 0 and at most 1", lambda value: _is_number(value) and 0 < value <= 1),
    "levels": Kind("a list of pairs [lower, higher]", lambda value: _is_list(value, _is_pair)),
}
ENTRIES: dict[str, Any] = {
    "threads": _whole(1, MOST_THREADS),
    "processes": _whole(1),
    "split": _whole(1),
    "train": PART,
    "unlabelled": PART,
    "test": PART,
    "held_out": _whole(0),
    "images": {**INPUT, "classes": Kind("a list of names", lambda value: isinstance(value, list))},
    "start": {"word": TEXT, "origin": TEXT, "network": TEXT, "input": INPUT},
}


def read_environment(path: Path) -> dict[str, Any]:
    """Read environment.json; empty if it is missing or holds no JSON object.

    Earlier versions recorded less, so any entry may be missing or null. One of another kind is a UserError.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    if wrong := _first_wrong(found, ENTRIES):
        raise UserError(f"{path}: {wrong}; put it back as the run recorded it")
    return found


def _first_wrong(values: Mapping[str, Any], entries: Mapping[str, Any], within: str = "") -> str:
    """Describe the first entry of another kind ("images.mean must be a list of numbers, got 'x'"); "" if none is."""
    for name, wanted in entries.items():
        value = values.get(name)
        if value is None:
            continue
        if isinstance(wanted, Kind):
            expected, is_right = wanted.expected, wanted.accepts(value)
        else:
            expected, is_right = "a JSON object", isinstance(value, dict)
        if not is_right:
            shown = repr(value)
            shown = shown if len(shown) <= SHOWN else f"{shown[: SHOWN - 4]} ..."
            return f"{within}{name} must be {expected}, got {shown}"
        if not isinstance(wanted, Kind) and (wrong := _first_wrong(value, wanted, f"{within}{name}.")):
            return wrong
    return ""
