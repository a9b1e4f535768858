"""Braces of the shell: shards/{000..127}.tar is 128 names, {train,test}-0.tar two."""

import re

from dualtemp.errors import UserError

MOST = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?:\.\.(\d+))?")


def has_braces(text: str) -> bool:
    """Whether a text holds braces that stand for several names."""
    return any("," in inside or _RANGE.fullmatch(inside) for inside in _BRACES.findall(text))


def expand_braces(text: str) -> list[str]:
    """Return all names that a text with braces stands for, in the order of the shell; without braces the text itself.

    A range keeps the zeros that it is written with.
    """
    found = next((each for each in _BRACES.finditer(text) if has_braces(each[0])), None)
    if found is None:
        return [text]
    words, after = _words(found[1]), expand_braces(text[found.end() :])
    if len(words) * len(after) > MOST:
        raise UserError(f"{text}: the braces stand for more than {MOST:,} names")
    return [text[: found.start()] + word + rest for word in words for rest in after]


def _words(inside: str) -> list[str]:
    ends = _RANGE.fullmatch(inside)
    if ends is None:
        return inside.split(",")
    first, last, step = int(ends[1]), int(ends[2]), max(1, int(ends[3] or 1))
    padded = any(word.startswith("0") and len(word) > 1 for word in ends.group(1, 2))
    width = max(map(len, ends.group(1, 2))) if padded else 0
    if abs(last - first) // step >= MOST:
        raise UserError(f"{{{inside}}}: stands for more than {MOST:,} names")
    numbers = range(first, last + 1, step) if last >= first else range(first, last - 1, -step)
    return [f"{i:0{width}}" for i in numbers]
