"""Former paths of modules, as once documented: importing them still works, with a warning."""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

MOVED = {
    "dualtemp.hardness": "dualtemp.losses.hardness",
    "dualtemp.data.loader": "dualtemp.data.loading.loader",
    "dualtemp.data.normalisation": "dualtemp.data.normalization",
    "dualtemp.data.recipes": "dualtemp.data.augment.recipes",
    "dualtemp.data.views": "dualtemp.data.augment.views",
    "dualtemp.paper.artefact": "dualtemp.paper.artifact",
    "dualtemp.paper.measured_step": "dualtemp.grids.measured_step",
    "dualtemp.training.status": "dualtemp.runs.status",
    "dualtemp.training.watches": "dualtemp.training.observers.observer",
}


class FormerModules(MetaPathFinder, Loader):
    """Finds a module under its former path and returns the one that replaces it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Claim former paths, and nothing else."""
        return spec_from_loader(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module from where it is now."""
        new = MOVED[spec.name]
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        module = import_module(new)
        self.own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run already: restore its own spec."""
        module.__spec__ = self.own_spec


def find_former_modules() -> None:
    """Make former paths importable. The finder comes last, after those of all real modules."""
    if not any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        sys.meta_path.append(FormerModules())
