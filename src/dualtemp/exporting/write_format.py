"""Write a format's files, read them back, and compare the features."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.errors import UserError
from dualtemp.exporting.export_format import ExportFormat
from dualtemp.exporting.exported_encoder import ExportedEncoder

LEAST_COSINE = 0.95  # of an approximate format, on average
PROBABILITY_DIFFERENCE = 1e-3  # the most, of a classifier in a graph


class ExportFailed(UserError):
    """The encoder cannot be exported in a format, which showed only when it was tried."""


def refuse_missing_packages(format: ExportFormat) -> None:
    """Say what has to be installed for a format."""
    missing = [package for package in format.packages if find_spec(package) is None]
    if missing:
        raise UserError(f"--format {format.name} needs {', '.join(missing)}: pip install 'dualtemp[{format.extra}]'")


def write_and_compare(format: ExportFormat, encoder: ExportedEncoder, folder: Path) -> dict[str, Any]:
    """Write a format's files into a folder and read them back; returns how far their features are from the run's.

    "difference" is the largest difference of any feature, divided by the largest feature if that is above 1; of an
    approximate format there is more, see `closeness`. A difference that matters is a UserError.
    """
    model = encoder.recipe["model"]
    with _quietly(), torch.no_grad():
        try:
            format.write(encoder, folder)
            # Three are another number than the graphs were made with.
            pixels = encoder.comparison() if format.is_approximate else encoder.pixels(3)
            parts, read = pixels.split(32), format.read(encoder, folder)
            wanted = torch.cat([encoder.backbone(encoder.views.normalize(part)) for part in parts])
            found = torch.cat([read(part) for part in parts])
        except UserError:
            raise
        except OSError:
            raise
        except Exception as error:  # exporters fail in as many ways as there are models
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise ExportFailed(
                f"--format {format.name}: {model} cannot be exported ({reason}); take another format"
            ) from error
    answers, found = found[:, wanted.shape[1] :], found[:, : wanted.shape[1]]
    difference = float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1.0))
    if format.is_approximate:
        close = closeness(wanted, found)
        if not close["cosine"] >= LEAST_COSINE:
            raise ExportFailed(
                f"--format {format.name}: features of {model} are at a mean cosine of {close['cosine']:.3f} with the "
                f"run's, {LEAST_COSINE} is needed; take another format"
            )
        return {"difference": difference, **close}
    if not difference < 1e-4:
        raise ExportFailed(
            f"--format {format.name}: the exported {model} gives other features than the run's encoder "
            f"(by {difference:.2g}); take another format"
        )
    if not (format.classifies and encoder.classifier is not None):
        return {"difference": difference}
    apart = float((answers - encoder.classifier.predict(wanted).probabilities).abs().max())
    if not apart < PROBABILITY_DIFFERENCE:
        raise ExportFailed(
            f"--format {format.name}: the exported classifier gives other probabilities than the run's (by "
            f"{apart:.2g}); leave --classifier out"
        )
    return {"difference": difference, "probability_difference": apart, "outputs": list(encoder.outputs)}


def closeness(wanted: Tensor, found: Tensor) -> dict[str, Any]:
    """How close features (N, F) are to those that were wanted.

    cosine, lowest_cosine: of an image's two features, on average and at worst; same_neighbor: share of the images
    whose nearest neighbor among the others is the same by both; compared_on: N.
    """
    cosines = F.cosine_similarity(wanted, found)
    both = [_nearest(F.normalize(features)) for features in (wanted, found)]
    return {
        "cosine": float(cosines.mean()),
        "lowest_cosine": float(cosines.min()),
        "same_neighbor": float((both[0] == both[1]).float().mean()),
        "compared_on": len(wanted),
    }


def _nearest(unit: Tensor) -> Tensor:
    return (unit @ unit.T).fill_diagonal_(-2.0).argmax(1)


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
