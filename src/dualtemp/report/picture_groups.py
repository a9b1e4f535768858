"""Pages with groups of pictures: search results of a photograph, or groups of near-duplicates."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dualtemp.report.page import render, write_page


class Card(NamedTuple):
    """A picture with its caption. picture: data URL, None if it cannot be shown; s: a cosine; first: highlighted."""

    picture: str | None
    name: str
    label: str | None = None
    s: float | None = None
    note: str = ""
    first: bool = False


class Section(NamedTuple):
    """A titled group of pictures."""

    title: str
    cards: Sequence[Card]


def write_search_page(
    path: Path, title: str, about: str, facts: Sequence[tuple[str, str]], sections: Sequence[Section]
) -> Path:
    """Write a page with a title, a sentence, facts as (name, value) and sections of pictures; one file, no network."""
    context = {"title": title, "about": about, "facts": facts, "sections": sections}
    return write_page(path, render("search.html.j2", context))
