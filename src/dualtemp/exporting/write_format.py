"""Write a format's files, read them back, and compare the features."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch

from dualtemp.errors import UserError
from dualtemp.exporting.export_format import ExportFormat
from dualtemp.exporting.exported_encoder import ExportedEncoder


def refuse_missing_packages(format: ExportFormat) -> None:
    """Say what has to be installed for a format."""
    missing = [package for package in format.packages if find_spec(package) is None]
    if missing:
        raise UserError(f"--format {format.name} needs {', '.join(missing)}: pip install 'dualtemp[{format.extra}]'")


def write_and_compare(format: ExportFormat, encoder: ExportedEncoder, folder: Path) -> float:
    """Write a format's files into a folder and read them back; returns how far their features are from the run's.

    It is the largest difference of any feature, divided by the largest feature if that is above 1. A difference that
    matters is a UserError.
    """
    model = encoder.recipe["model"]
    with _quietly(), torch.no_grad():
        try:
            format.write(encoder, folder)
            pixels = encoder.pixels(3)  # another number than the graphs were made with
            wanted = encoder.backbone(encoder.views.normalize(pixels))
            found = format.read(encoder, folder)(pixels)
        except OSError:
            raise
        except Exception as error:  # exporters fail in as many ways as there are models
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise UserError(
                f"--format {format.name}: {model} cannot be exported ({reason}); take another format"
            ) from error
    difference = float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1.0))
    if not difference < 1e-4:
        raise UserError(
            f"--format {format.name}: the exported {model} gives other features than the run's encoder "
            f"(by {difference:.2g}); nothing was written, take another format"
        )
    return difference


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Silence what exporters tell their own developers."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
