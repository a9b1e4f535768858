"""How a run prepares its images: size, recipe and normalization, channels and class names."""

from typing import Any, NamedTuple

from dualtemp.config import Settings
from dualtemp.data.augment.views import Views
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import known_environment, levels_of, open_data, resize_of, training_data


class RunImages(NamedTuple):
    """views: with the run's size, recipe and normalization; channels: 1 is gray; classes: names, empty if unknown."""

    views: Views
    channels: int
    classes: tuple[str, ...]


def run_images(run: RunFolder, settings: Settings) -> RunImages:
    """Read what the run recorded; for older runs, determine it from their data."""
    if settings.image_size is None:
        raise UserError(f"{run.config} has no image_size: give the folder that `dualtemp train` wrote")
    environment = known_environment(run, settings)
    known: Any = environment.get("images")
    try:
        channels, classes = int(known["channels"]), tuple(str(name) for name in known["classes"])
        mean, std = (tuple(float(value) for value in known[name]) for name in ("mean", "std"))
        assert len(mean) == channels
        views = Views(
            settings.recipe, settings.image_size, settings.seed, mean, std, *resize_of(known), levels_of(known)
        )
        return RunImages(views, channels, classes)
    except (TypeError, KeyError, ValueError, AssertionError):
        splits = open_data(settings, environment)
        return RunImages(
            training_data(settings, splits, environment).views, splits.train.channels, splits.train.classes
        )
