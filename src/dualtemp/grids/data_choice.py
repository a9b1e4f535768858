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
        pairs = [word.split("=", 1) for word in words if _is_pair(word)]
        named = {resolved_name(name): resolved_name(there) for name, there in pairs}
        others = [resolved_name(word) for word in words if not _is_pair(word)]
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


def _is_pair(word: str) -> bool:
    return "=" in word and not os.path.exists(os.path.expanduser(word))
