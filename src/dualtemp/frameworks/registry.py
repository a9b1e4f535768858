"""Frameworks by name: this package's, those of installed packages, and of files that the user names. Needs no torch."""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from dualtemp.errors import UserError
from dualtemp.frameworks.protocol import Framework, FrameworkSettings
from dualtemp.plugins import Registry, add_plugin, load_plugin

__all__ = ["add_plugin", "framework", "framework_named", "frameworks", "load_plugin"]

DECLARATION = re.compile(r"^@framework\(", re.MULTILINE)
NO_DEFAULT = ("heads", "forward")
# Arguments of `dualtemp.train` besides settings, and flags of its command.
OF_TRAIN = ("checkpoint_minutes", "config", "device", "help", "log", "observer", "out", "page", "plugin", "quiet")
OF_TRAIN += ("threads", "watch", "workers")

F = TypeVar("F", bound=type)

_places: dict[str, int] = {}


def _load_built_in() -> tuple[str, ...]:
    """Import the files of this folder that declare a framework, and no others, which may need torch."""
    folder, package = Path(__file__).parent, __name__.rpartition(".")[0]
    for path in sorted(folder.glob("*.py")):
        if DECLARATION.search(path.read_text(encoding="utf-8")):
            import_module(f"{package}.{path.stem}")
    return tuple(sorted(_places, key=lambda name: (_places[name], name)))


_registry: Registry[type[Framework]] = Registry("framework", _load_built_in)


def framework(name: str, *, place: int | None = None) -> Callable[[F], F]:
    """Register a class as the framework of this name: `@framework("simco")`.

    place: for this package's own frameworks, which come before all others: their order in `--help`, on pages and in
    config.yaml. Existing ones keep their places.
    """

    def register(declared: F) -> F:
        _registry.refuse_taken(name, declared.__module__)
        for wanted in ("Settings", "heads", "passes", "forward"):
            found = getattr(declared, wanted, None)
            if found is None or (wanted in NO_DEFAULT and found is getattr(Framework, wanted)):
                raise UserError(f"the framework {name!r} has no `{wanted}`: see dualtemp.frameworks.Framework")
        _require_settings(name, declared.Settings)
        _registry.declare(name, declared, declared.__module__)  # pyright: ignore[reportArgumentType]
        if place is not None:
            _places[name] = place
        return declared

    return register


def _require_settings(name: str, kind: Any) -> None:
    """Refuse settings that cannot become flags: each needs a default, a description and a name of its own."""
    if not (isinstance(kind, type) and issubclass(kind, FrameworkSettings)):
        raise UserError(
            f"`Settings` of the framework {name!r} must be derived from dualtemp.frameworks.FrameworkSettings"
        )
    for setting, field in kind.model_fields.items():
        if field.is_required() or not field.description:
            raise UserError(
                f"the setting {setting!r} of the framework {name!r} needs a default and a description: give it "
                "Field(DEFAULT, description=...)"
            )
        if setting in OF_TRAIN:
            raise UserError(f"the framework {name!r} has a setting {setting!r}, as `dualtemp train` has: rename it")


def frameworks() -> Mapping[str, type[Framework]]:
    """All frameworks by name, this package's first."""
    return _registry


def framework_named(name: str) -> type[Framework]:
    """One framework; the name must be known."""
    return _registry[name]
