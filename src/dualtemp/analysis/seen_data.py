"""The data that a run is looked at with: its own, or others seen as it saw its own."""

from pathlib import Path

from dualtemp.config import Settings
from dualtemp.data import open_source
from dualtemp.data.images import Splits
from dualtemp.data.normalisation import Normalisation
from dualtemp.data.views import Views
from dualtemp.errors import UserError
from dualtemp.training.run_data import opened, training_data
from dualtemp.training.run_folder import RunFolder
from dualtemp.training.training_data import TrainingData


def seen_data(run: RunFolder, chosen: Settings, data: str | Path | None = None) -> TrainingData:
    """The run's own data (None), or a set, folder or .npz file with the run's image size, recipe and normalisation."""
    if chosen.image_size is None:
        raise UserError(f"{run.config} has no image_size: give the folder that `dualtemp train` wrote")
    if data is None:
        return training_data(chosen, opened(chosen))
    splits = open_source(data)
    mean, std = run_normalisation(run, chosen)
    if splits.train.channels != len(mean):
        raise UserError(
            f"{data} has images of {splits.train.channels} channels, {run.path} was trained on {len(mean)}: give such "
            "images"
        )
    return _as_training_data(splits, Views(chosen.recipe, chosen.image_size, chosen.seed, mean, std))


def run_normalisation(run: RunFolder, chosen: Settings) -> Normalisation:
    """Mean and std that the run saw its images with: as it wrote down, else, in older runs, found out from its data."""
    known = run.made_with().get("images")
    try:
        mean, std = (tuple(float(value) for value in known[name]) for name in ("mean", "std"))  # pyright: ignore
    except (TypeError, KeyError, ValueError):
        views = training_data(chosen, opened(chosen)).views
        return views.mean, views.std
    return mean, std


def _as_training_data(splits: Splits, views: Views) -> TrainingData:
    labelled = splits.train.labels is not None and splits.test is not None and splits.test.labels is not None
    classes = len(splits.train.classes) if labelled else 0
    return TrainingData(splits.pretraining, splits.train if labelled else None, splits.test, views, classes)
