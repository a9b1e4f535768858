"""Plugins: named objects added from outside, by installed packages (entry points) or by files (`--plugin`).

A file may declare frameworks, recipes of views, backbones, sources of images and measures. Needs no torch.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from dualtemp.errors import UserError

T = TypeVar("T")

VARIABLE = "DUALTEMP_PLUGINS"
_registries: "list[Registry[Any]]" = []
_loaded_groups: set[str] = set()


class Registry(Mapping[str, T], Generic[T]):
    """Objects of one kind by name: first this package's, then those of installed packages, then those of plugins.

    kind: the word for one object; built_in: called when an object is first needed, declares this package's own and
    returns their names in display order. Installed packages declare theirs in the entry-point group `dualtemp.KINDs`.
    """

    def __init__(self, kind: str, built_in: Callable[[], tuple[str, ...]] = tuple) -> None:
        self.kind, self.group = kind, f"dualtemp.{kind}s"
        self._declared: dict[str, T] = {}
        self._homes: dict[str, str] = {}  # the module that declared each
        self._load_built_in = cache(lambda: self._put_first(built_in()))
        _registries.append(self)

    def declare(self, name: str, thing: T, module: str) -> None:
        """Register an object; module: where it was declared."""
        self.refuse_taken(name, module)
        self._declared[name], self._homes[name] = thing, module

    def refuse_taken(self, name: str, module: str) -> None:
        """Refuse a name that another module has declared; the same module may declare it again."""
        known = self._homes.get(name)
        if known not in (None, module):
            raise UserError(f"two {self.kind}s are called {name!r}: in {known} and in {module}")

    def declared_in(self, package: str) -> tuple[str, ...]:
        """Names that modules of a package have declared so far, sorted."""
        return tuple(sorted(name for name, module in self._homes.items() if f"{module}.".startswith(f"{package}.")))

    def load_built_in(self) -> None:
        """Declare this package's own objects, once."""
        self._load_built_in()

    def _put_first(self, names: tuple[str, ...]) -> None:
        # A module that was imported on its own has declared its object before the others.
        rest = [name for name in self._declared if name not in names]
        self._declared = {name: self._declared[name] for name in (*names, *rest)}

    def _all(self) -> dict[str, T]:
        self._load_built_in()
        load_installed(self.group)
        _load_named_plugins()
        return self._declared

    def __getitem__(self, name: str) -> T:
        """Return the object of this name."""
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._all())

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all())


def load_installed(group: str) -> None:
    """Import what installed packages name in an entry-point group, once."""
    if group in _loaded_groups:
        return
    _loaded_groups.add(group)  # before importing: a plugin may look up the registry, which leads here again
    for entry in entry_points(group=group):
        try:
            entry.load()
        except UserError:
            _loaded_groups.discard(group)
            raise
        except Exception as error:  # a plugin may raise anything
            _loaded_groups.discard(group)
            package = entry.dist.name if entry.dist else entry.module
            raise UserError(
                f"the installed plugin {entry.value} ({group}) fails: {type(error).__name__}: {error}; repair or "
                f"uninstall the package {package}"
            ) from error


def plugins() -> list[Path]:
    """Files that `--plugin` named, for this process and those that it starts."""
    return [Path(word) for word in os.environ.get(VARIABLE, "").split(os.pathsep) if word]


def add_plugin(word: str) -> None:
    """Load a plugin, in this process and in all that it starts."""
    path = Path(os.path.expanduser(word)).absolute()  # an unknown ~user stays as written
    load_plugin(path)
    if path not in plugins():
        os.environ[VARIABLE] = os.pathsep.join(str(each) for each in (*plugins(), path))


def load_plugin(path: Path) -> None:
    """Run a Python file that declares frameworks, recipes, backbones or sources; the same content runs once."""
    for registry in _registries:  # first, so that a name that is already taken is noticed
        registry.load_built_in()
    _load_named_plugins()
    _run(path)


@cache
def _load_named_plugins() -> None:
    for path in plugins():
        _run(path)


def _run(path: Path) -> None:
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
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        where = _last_line(error, path)
        raise UserError(f"--plugin {path}{where} fails: {type(error).__name__}: {error}") from error


def _last_line(error: BaseException, path: Path) -> str:
    """The line of the plugin at which an error was raised, as ", line 12,"; "" if there is none."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(error.lineno)
    return f", line {lines[-1]}," if lines else ""
