"""Which data --data chooses in place of the declared sets. Needs no torch."""

from dataclasses import dataclass, field

from dualtemp.data.sources.catalogue import resolved_name
from dualtemp.errors import UserError


@dataclass(frozen=True)
class DataChoice:
    """The choice made by --data: one set for all, and replacements for named sets (`--data cifar100=FOLDER`)."""

    all: str | None = None
    named: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(words: list[str]) -> "DataChoice":
        """Parse the values of --data."""
        pairs = (word.split("=", 1) for word in words if "=" in word)
        named = {resolved_name(name): resolved_name(there) for name, there in pairs}
        others = [resolved_name(word) for word in words if "=" not in word]
        if len(others) > 1:
            raise UserError(f"--data {' '.join(others)}: give one set for all; to replace a single set, use NAME=SET")
        return DataChoice(others[0] if others else None, named)
