"""Lazy public names: a package imports its modules when their names are first used, so that importing it is cheap."""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str], renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Build `__getattr__` and `__dir__` of a module.

    The package's modules can be used too: `import dualtemp` is enough for `dualtemp.losses`.

    Args:
        package: the module's `__name__`.
        homes: for each public name, the submodule that defines it.
        renamed: for each former name, the full path of its replacement ("dualtemp.losses.info_nce"); former names
            still work, with a DeprecationWarning.
    """

    def load(name: str) -> Any:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        if renamed is not None and name in renamed:
            warnings.warn(f"{package}.{name} is now {renamed[name]}", DeprecationWarning, stacklevel=2)
            module, _, new = renamed[name].rpartition(".")
            return getattr(import_module(module), new)
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted(homes)
