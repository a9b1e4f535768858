"""The named sets: their sizes and origins. Nothing is opened here, and torch is not needed."""

import os
from dataclasses import dataclass

from dualtemp.errors import UserError
from dualtemp.text import did_you_mean, similar_words

DEFAULT_VIEW_SIZE = 224  # px, side of a view of image files by default


@dataclass(frozen=True)
class NamedSet:
    """The facts about one named set.

    train, test, unlabeled: numbers of images; size: height = width in pixels, None if images differ in size;
    download: megabytes to fetch, 0 if nothing is fetched; origin: who made it.
    """

    name: str
    classes: int
    train: int
    test: int
    size: int | None
    channels: int
    download: int
    origin: str
    unlabeled: int = 0


CATALOGUE: dict[str, NamedSet] = {
    entry.name: entry
    for entry in (
        NamedSet("digits", 10, 1438, 359, 8, 1, 0, "Alpaydin and Kaynak 1998, UCI"),
        NamedSet("cifar10", 10, 50_000, 10_000, 32, 3, 170, "Krizhevsky 2009"),
        NamedSet("cifar100", 100, 50_000, 10_000, 32, 3, 169, "Krizhevsky 2009"),
        NamedSet("svhn", 10, 73_257, 26_032, 32, 3, 246, "Netzer et al. 2011"),
        NamedSet("stl10", 10, 5_000, 8_000, 96, 3, 2640, "Coates et al. 2011", unlabeled=100_000),
        NamedSet("fashion-mnist", 10, 60_000, 10_000, 28, 1, 31, "Xiao et al. 2017"),
        NamedSet("imagenet100", 100, 126_689, 5_000, None, 3, 0, "Russakovsky et al. 2015; Tian et al. 2020"),
    )
}


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


_BY_PLAIN_NAME = {_plain(name): entry for name, entry in CATALOGUE.items()}


def named_set(text: str) -> NamedSet | None:
    """Find a set by name, ignoring case and hyphens ("CIFAR-10" is "cifar10"); None if there is none."""
    return _BY_PLAIN_NAME.get(_plain(text))


def resolved_name(source: str) -> str:
    """The canonical name of a set in any spelling ("CIFAR-100"); other sources are returned unchanged.

    Sources are resolved first of all, since normalization, keys of results and pages go by the canonical name.
    """
    entry = None if looks_like_path(source) else named_set(source)
    return source if entry is None else entry.name


def looks_like_path(source: str) -> bool:
    """Whether a word can only be a path, so that a folder may have the name of a set."""
    separators, endings = {os.sep, os.altsep or os.sep}, (".npz", ".tar", ".parquet")
    return source in (".", "..") or source.startswith("~") or source.endswith(endings) or bool(separators & set(source))


def unknown_set(text: str) -> UserError:
    """An error that no set or path has this name, with the most similar set."""
    near = similar_words(_plain(text), _BY_PLAIN_NAME)
    entry = named_set(near[0]) if near else None
    hint = f"{did_you_mean([repr(entry.name)])} " if entry else ""
    return UserError(
        f"no set, folder or file is called '{text}': {hint}Sets: {', '.join(CATALOGUE)}; "
        "or give the path of a folder of images or of an .npz file"
    )
