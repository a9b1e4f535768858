"""Functions that open files of whole sets of images, by file name ending. Needs no torch until a file is opened.

Any module in this folder may register one with `@source`, and so may plugins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Protocol, TypeVar

from dualtemp.data import sources
from dualtemp.errors import UserError
from dualtemp.plugins import Registry

if TYPE_CHECKING:
    from dualtemp.data.images import Splits


class Opener(Protocol):
    """A function that opens a file as the parts of a set."""

    def __call__(self, path: Path, *, labels: bool, together: bool) -> Splits:
        """Open a file; labels: use them; together: keep copies of one image on one side of a split."""
        ...


O = TypeVar("O", bound=Opener)  # noqa: E741


def _load_built_in() -> tuple[str, ...]:
    for each in iter_modules(sources.__path__):
        import_module(f"{sources.__name__}.{each.name}")
    return _registry.declared_in(sources.__name__)


_registry: Registry[Opener] = Registry("source", _load_built_in)


def source(ending: str) -> Callable[[O], O]:
    """Register a function that opens files with this ending: `@source(".zip")`."""
    if not ending.startswith(".") or ending != ending.lower():
        raise UserError(f"the source {ending!r}: give the ending of its files in lower case, such as '.zip'")

    def register(opener: O) -> O:
        _registry.declare(ending, opener, getattr(opener, "__module__", ""))
        return opener

    return register


def openers() -> Mapping[str, Opener]:
    """The functions that open files, by ending."""
    return _registry
