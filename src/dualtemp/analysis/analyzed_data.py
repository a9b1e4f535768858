"""The data that an analysis uses: the run's own, or other images processed as the run processed its own."""

from pathlib import Path

from dualtemp.config import Settings
from dualtemp.data import open_source
from dualtemp.data.augment.views import Views
from dualtemp.data.deep_gray import with_levels
from dualtemp.data.images import Splits
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import known_environment, open_data, training_data
from dualtemp.training.run_images import run_images


def open_analyzed_data(run: RunFolder, chosen: Settings, data: str | Path | None = None) -> TrainingData:
    """Open the run's own data (None), or other data with the run's image size, recipe and normalization."""
    if data is None:
        environment = known_environment(run, chosen)
        return training_data(chosen, open_data(chosen, environment), environment)
    splits, (views, channels, _) = open_source(data), run_images(run, chosen)
    if splits.train.channels != channels:
        raise UserError(
            f"{data} has images with {splits.train.channels} channels, but {run.path} was trained on {channels}: give "
            f"images with {channels}"
        )
    if views.levels is not None:
        splits = with_levels(splits, views.levels)
    return as_training_data(splits, views)


def as_training_data(splits: Splits, views: Views) -> TrainingData:
    """Parts of a source as a run sees them."""
    labeled = splits.train.labels is not None and splits.test is not None and splits.test.labels is not None
    classes = len(splits.train.classes) if labeled else 0
    return TrainingData(splits.pretraining, splits.train if labeled else None, splits.test, views, classes)
