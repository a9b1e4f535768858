"""The data that --data gives in place of the declared sets. Needs no torch."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from dualtemp.data.sources.catalogue import resolved_name
from dualtemp.errors import UserError
from dualtemp.text import suggest


@dataclass(frozen=True)
class DataChoice:
    """The choice made by --data: one set for all, and replacements for named sets (`--data cifar100=FOLDER`)."""

    all: str | None = None
    named: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(words: list[str]) -> "DataChoice":
        """Parse the values of --data; the name of an existing folder or file is not read as NAME=SET."""
        named: dict[str, str] = {}
        others: list[str] = []
        for word in words:
            name, there = split_pair(word)
            if not there:
                raise UserError(f"--data {word!r}: an empty name; give a set, a folder, a file or NAME=SET")
            if name is None:
                others.append(resolved_name(there))
            elif named.setdefault(resolved_name(name), resolved_name(there)) != resolved_name(there):
                raise UserError(f"--data {word}: {name} is replaced twice; give it one replacement")
        if len(others) > 1:
            raise UserError(f"--data {' '.join(others)}: give one set for all; to replace a single set, use NAME=SET")
        return DataChoice(others[0] if others else None, named)

    def replacement(self, word: str) -> str | None:
        """Return the replacement of a set or folder declared as `word`; None if there is none."""
        return self.named.get(resolved_name(word))

    def refuse_unused(self, declared: Iterable[str]) -> None:
        """Refuse to replace a set that is not among the declared ones."""
        names = {resolved_name(word): word for word in declared if word}
        for name, there in self.named.items():
            if name not in names:
                nearest = suggest(name, names.values(), otherwise=None if names else "leave it out")
                raise UserError(f"--data {name}={there}: nothing here is measured on {name!r}: {nearest}")


def split_pair(word: str) -> tuple[str | None, str]:
    """Split NAME=SET; the name is None for a set or path for all, also if the path has an equals sign."""
    if "=" not in word or os.path.exists(os.path.expanduser(word)):
        return None, word
    name, _, there = word.partition("=")
    return name, there
