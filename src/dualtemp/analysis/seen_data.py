"""The data that a run is looked at with: its own, or others seen as it saw its own."""

from pathlib import Path

from dualtemp.config import Settings
from dualtemp.data import open_source
from dualtemp.data.augment.views import Views
from dualtemp.data.images import Splits
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import opened, training_data
from dualtemp.training.run_images import run_images


def seen_data(run: RunFolder, chosen: Settings, data: str | Path | None = None) -> TrainingData:
    """The run's own data (None), or a set, folder or .npz file with the run's image size, recipe and normalisation."""
    if data is None:
        made_with = run.made_with()
        return training_data(chosen, opened(chosen, made_with), made_with)
    splits, (views, channels, _) = open_source(data), run_images(run, chosen)
    if splits.train.channels != channels:
        raise UserError(
            f"{data} has images of {splits.train.channels} channels, {run.path} was trained on {channels}: give such "
            "images"
        )
    return as_training_data(splits, views)


def as_training_data(splits: Splits, views: Views) -> TrainingData:
    """Parts of a source as a run sees them."""
    labelled = splits.train.labels is not None and splits.test is not None and splits.test.labels is not None
    classes = len(splits.train.classes) if labelled else 0
    return TrainingData(splits.pretraining, splits.train if labelled else None, splits.test, views, classes)
