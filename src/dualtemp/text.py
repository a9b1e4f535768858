"""Answer a mistyped word with the nearest valid one."""

from collections.abc import Iterable


def similar_words(word: str, choices: Iterable[str], count: int = 1, least: float = 0.5) -> list[str]:
    """Return up to `count` choices that resemble `word`, the most similar first; least: how similar, from 0 to 1."""
    from difflib import get_close_matches  # here, because only a mistake needs it

    return get_close_matches(word, list(choices), n=count, cutoff=least)


def did_you_mean(names: Iterable[str]) -> str:
    """The question "did you mean ...?", worded alike in every message; names are shown as given."""
    return f"did you mean {', '.join(names)}?"


def suggest(word: str, choices: Iterable[str], otherwise: str | None = None) -> str:
    """Return "did you mean 'simco'?", or if nothing resembles `word`, `otherwise`; by default the list of choices."""
    choices = list(choices)
    if near := similar_words(word, choices):
        return did_you_mean(map(repr, near))
    return f"choose among {', '.join(choices)}" if otherwise is None else otherwise
