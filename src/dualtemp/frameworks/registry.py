"""Frameworks by name: this package's, those of installed packages, and of files that the user names. Needs no torch."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from dualtemp.errors import UserError
from dualtemp.frameworks.protocol import Framework
from dualtemp.plugins import Registry, add_plugin, load_plugin

__all__ = ["add_plugin", "framework", "framework_named", "frameworks", "load_plugin"]

F = TypeVar("F", bound=type)


def _load_built_in() -> tuple[str, ...]:
    # Their order is that of `--help`, of pages and of config.yaml: older ones stay where they are.
    from dualtemp.frameworks import byol, moco, simclr, simco, simmoco, simsiam, supervised

    modules = (moco, simmoco, simco, simclr, byol, simsiam, supervised)
    return tuple(module.__name__.rpartition(".")[2] for module in modules)


_registry: Registry[type[Framework]] = Registry("framework", _load_built_in)


def framework(name: str) -> Callable[[F], F]:
    """Register a class as the framework of this name: `@framework("simco")`."""

    def register(declared: F) -> F:
        _registry.refuse_taken(name, declared.__module__)
        for wanted in ("Settings", "heads", "passes", "forward"):
            if not hasattr(declared, wanted):
                raise UserError(f"the framework {name!r} has no `{wanted}`: see dualtemp.frameworks.Framework")
        _registry.declare(name, declared, declared.__module__)  # pyright: ignore[reportArgumentType]
        return declared

    return register


def frameworks() -> Mapping[str, type[Framework]]:
    """All frameworks by name, this package's first."""
    return _registry


def framework_named(name: str) -> type[Framework]:
    """One framework; the name must be known."""
    return _registry[name]
