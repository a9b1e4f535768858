"""Pages of pictures that belong together: what was found near a photograph, or groups of near-duplicates."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dualtemp.report.page import rendered, write_page


class Card(NamedTuple):
    """A picture (data URL; None: it cannot be shown) with what is said below it. s: a cosine; first: stands out."""

    picture: str | None
    name: str
    label: str | None = None
    s: float | None = None
    note: str = ""
    first: bool = False


class Section(NamedTuple):
    """Pictures that belong together."""

    title: str
    cards: Sequence[Card]


def write_search_page(
    path: Path, title: str, about: str, facts: Sequence[tuple[str, str]], sections: Sequence[Section]
) -> Path:
    """Write the page: a title, a sentence, facts as (what, value), and sections of pictures; one file, no network."""
    context = {"title": title, "about": about, "facts": facts, "sections": sections}
    return write_page(path, rendered("search.html.j2", context))
