"""Files that hold whole sets of images, by their ending; others than .npz come from plugins. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from dualtemp.errors import UserError
from dualtemp.plugins import Registry

if TYPE_CHECKING:
    from dualtemp.data.images import Splits


class Opener(Protocol):
    """Opens a file as the parts of a set."""

    def __call__(self, path: Path, *, labels: bool, together: bool) -> Splits:
        """Open a file; labels: use them; together: keep copies of one image on one side of a split."""
        ...


O = TypeVar("O", bound=Opener)  # noqa: E741
_registry: Registry[Opener] = Registry("source")


def source(ending: str) -> Callable[[O], O]:
    """Register a function as what opens files with this ending: `@source(".zip")`."""
    if not ending.startswith(".") or ending != ending.lower():
        raise UserError(f"the source {ending!r}: give the ending of its files in small letters, such as '.zip'")

    def register(opener: O) -> O:
        _registry.declare(ending, opener, getattr(opener, "__module__", ""))
        return opener

    return register


def openers() -> Mapping[str, Opener]:
    """What opens files, by their ending."""
    return _registry
