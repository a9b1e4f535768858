"""Expand braces like the shell: shards/{000..127}.tar is 128 names, {train,test}-0.tar two."""

import re

from dualtemp.errors import UserError

MOST = 1_000_000
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?:\.\.(\d+))?")


def has_braces(text: str) -> bool:
    """Whether a text holds braces that stand for several names."""
    return _first_pair(text) is not None


def expand_braces(text: str) -> list[str]:
    """Return all names that a text with braces stands for, in the order of the shell; without braces the text itself.

    Ranges keep their leading zeros.
    """
    found = _first_pair(text)
    if found is None:
        return [text]
    start, end = found
    words, after = _words(text[start + 1 : end]), expand_braces(text[end + 1 :])
    if len(words) * len(after) > MOST:
        raise UserError(f"{text}: the braces stand for more than {MOST:,} names")
    return [text[:start] + word + rest for word in words for rest in after]


def _first_pair(text: str) -> tuple[int, int] | None:
    """Where the first braces that stand for several names open and close; None if there are none."""
    for start, letter in enumerate(text):
        if letter == "{" and (end := _closing(text, start)) is not None:
            inside = text[start + 1 : end]
            if len(_split(inside)) > 1 or _RANGE.fullmatch(inside):
                return start, end
    return None


def _closing(text: str, start: int) -> int | None:
    """Where the brace that opens at `start` closes; None if it does not."""
    depth = 0
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return None


def _split(inside: str) -> list[str]:
    """The parts between commas; commas inside inner braces do not count."""
    depth, parts = 0, [""]
    for letter in inside:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _words(inside: str) -> list[str]:
    ends = _RANGE.fullmatch(inside)
    if ends is None:
        return [word for part in _split(inside) for word in expand_braces(part)]
    first, last, step = int(ends[1]), int(ends[2]), max(1, int(ends[3] or 1))
    padded = any(word.startswith("0") and len(word) > 1 for word in ends.group(1, 2))
    width = max(map(len, ends.group(1, 2))) if padded else 0
    if abs(last - first) // step >= MOST:
        raise UserError(f"{{{inside}}}: stands for more than {MOST:,} names")
    numbers = range(first, last + 1, step) if last >= first else range(first, last - 1, -step)
    return [f"{i:0{width}}" for i in numbers]
