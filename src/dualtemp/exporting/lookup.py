"""Find the export formats by listing the files of `formats/`: a new format is one new file. Needs no torch."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from dualtemp.exporting import formats
from dualtemp.exporting.export_format import ExportFormat


@cache
def export_formats() -> dict[str, ExportFormat]:
    """All formats by name: weights first, then graphs."""
    modules = [import_module(f"{formats.__name__}.{each.name}") for each in iter_modules(formats.__path__)]
    found: list[ExportFormat] = [module.FORMAT for module in modules]
    return {each.name: each for each in sorted(found, key=lambda each: (each.is_graph, each.name))}
