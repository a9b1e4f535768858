"""Frameworks by name: this package's, those of installed packages, and of files that the user names. Needs no torch."""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from dualtemp.errors import UserError
from dualtemp.frameworks.protocol import Framework
from dualtemp.plugins import Registry, add_plugin, load_plugin

__all__ = ["add_plugin", "framework", "framework_named", "frameworks", "load_plugin"]

DECLARATION = re.compile(r"^@framework\(", re.MULTILINE)

F = TypeVar("F", bound=type)

_places: dict[str, int] = {}


def _load_built_in() -> tuple[str, ...]:
    """Import this package's frameworks, which are the files of this folder that declare one; others may need torch."""
    folder, package = Path(__file__).parent, __name__.rpartition(".")[0]
    for path in sorted(folder.glob("*.py")):
        if DECLARATION.search(path.read_text(encoding="utf-8")):
            import_module(f"{package}.{path.stem}")
    return tuple(sorted(_places, key=lambda name: (_places[name], name)))


_registry: Registry[type[Framework]] = Registry("framework", _load_built_in)


def framework(name: str, *, place: int | None = None) -> Callable[[F], F]:
    """Register a class as the framework of this name: `@framework("simco")`.

    place: of this package's own, which come first, among each other: the order of `--help`, of pages and of
    config.yaml. Older ones keep theirs.
    """

    def register(declared: F) -> F:
        _registry.refuse_taken(name, declared.__module__)
        for wanted in ("Settings", "heads", "passes", "forward"):
            if not hasattr(declared, wanted):
                raise UserError(f"the framework {name!r} has no `{wanted}`: see dualtemp.frameworks.Framework")
        _registry.declare(name, declared, declared.__module__)  # pyright: ignore[reportArgumentType]
        if place is not None:
            _places[name] = place
        return declared

    return register


def frameworks() -> Mapping[str, type[Framework]]:
    """All frameworks by name, this package's first."""
    return _registry


def framework_named(name: str) -> type[Framework]:
    """One framework; the name must be known."""
    return _registry[name]
