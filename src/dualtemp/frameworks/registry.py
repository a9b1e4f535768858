"""Frameworks by name: this package's, those of installed packages, and of files that the user names. Needs no torch."""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from dualtemp.errors import UserError
from dualtemp.frameworks.protocol import Framework

F = TypeVar("F", bound=type)

BUILT_IN = ("moco", "simmoco", "simco", "simclr", "byol", "simsiam", "supervised")
ENTRY_POINTS = "dualtemp.frameworks"
VARIABLE = "DUALTEMP_PLUGINS"
_registered: dict[str, type[Framework]] = {}


def framework(name: str) -> Callable[[F], F]:
    """Register a class as the framework of this name: `@framework("simco")`."""

    def register(declared: F) -> F:
        known = _registered.get(name)
        if known is not None and known.__module__ != declared.__module__:
            raise UserError(f"two frameworks are called {name!r}: in {known.__module__} and in {declared.__module__}")
        for wanted in ("Settings", "heads", "passes", "forward"):
            if not hasattr(declared, wanted):
                raise UserError(f"the framework {name!r} has no `{wanted}`: see dualtemp.frameworks.Framework")
        _registered[name] = declared  # pyright: ignore[reportArgumentType]
        return declared

    return register


def frameworks() -> dict[str, type[Framework]]:
    """All frameworks by name, this package's first."""
    _load_installed()
    return _registered


def framework_named(name: str) -> type[Framework]:
    """One framework; the name must be known."""
    return frameworks()[name]


def load_plugin(path: Path) -> None:
    """Run a Python file that declares frameworks, once for its content."""
    _load_installed()  # first, so that a name which is taken is noticed
    _run_plugin(path)


def _run_plugin(path: Path) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"--plugin {path} cannot be read ({error.strerror}): give a Python file") from None
    module_name = f"dualtemp_plugin_{hashlib.sha256(content).hexdigest()[:16]}"
    if module_name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"--plugin {path} is no Python file: its name must end in .py")
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except UserError:
        del sys.modules[module_name]
        raise
    except Exception as error:
        del sys.modules[module_name]
        where = _last_line(error, path)
        raise UserError(f"--plugin {path}{where} fails: {type(error).__name__}: {error}") from error


@cache
def _load_installed() -> None:
    for name in BUILT_IN:
        import_module(f"dualtemp.frameworks.{name}")
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:  # somebody else's package
            raise UserError(f"the installed plugin {entry.value} fails: {type(error).__name__}: {error}") from error
    for path in plugins():
        _run_plugin(path)


def plugins() -> list[Path]:
    """Files that `--plugin` named, for this process and those that it starts."""
    return [Path(word) for word in os.environ.get(VARIABLE, "").split(os.pathsep) if word]


def add_plugin(word: str) -> None:
    """Load a file that declares frameworks, here and in all processes that are started from here."""
    path = Path(word).expanduser().absolute()
    load_plugin(path)
    if path not in plugins():
        os.environ[VARIABLE] = os.pathsep.join(str(each) for each in (*plugins(), path))


def _last_line(error: Exception, path: Path) -> str:
    """Where in the plugin it went wrong: ", line 12,"."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(error.lineno)
    return f", line {lines[-1]}," if lines else ""
