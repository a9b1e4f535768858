"""How a run saw its images: size, recipe and normalisation, channels and class names."""

from typing import Any, NamedTuple

from dualtemp.config import Settings
from dualtemp.data.augment.views import Views
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import opened, resize_of, training_data


class RunImages(NamedTuple):
    """views: with the run's image size, recipe and normalisation; channels: 1 is grey; classes: empty if unknown."""

    views: Views
    channels: int
    classes: tuple[str, ...]


def run_images(run: RunFolder, chosen: Settings) -> RunImages:
    """As the run wrote it down; in older runs, found out from their data."""
    if chosen.image_size is None:
        raise UserError(f"{run.config} has no image_size: give the folder that `dualtemp train` wrote")
    known: Any = run.made_with().get("images")
    try:
        channels, classes = int(known["channels"]), tuple(str(name) for name in known["classes"])
        mean, std = (tuple(float(value) for value in known[name]) for name in ("mean", "std"))
        assert len(mean) == channels
        views = Views(chosen.recipe, chosen.image_size, chosen.seed, mean, std, *resize_of(known))
        return RunImages(views, channels, classes)
    except (TypeError, KeyError, ValueError, AssertionError):
        made_with = run.made_with()
        splits = opened(chosen, made_with)
        return RunImages(training_data(chosen, splits, made_with).views, splits.train.channels, splits.train.classes)
