"""Judge encoders without labels: which of several runs on the same images to take, and whether to train on."""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import torch

from dualtemp.data.images import ImageSet
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.errors import UserError
from dualtemp.evaluation.baselines import with_baselines
from dualtemp.evaluation.judge import FEWEST, IMAGES, Forecast, best_before, chance_better, forecast, keep_judged
from dualtemp.evaluation.label_free import judged_images, judged_measures
from dualtemp.machine import check_workers
from dualtemp.runs.evaluated_measures import START
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.kept_encoder import kept_history
from dualtemp.runs.thresholds import SURE
from dualtemp.training.run_data import open_data


class Judged(NamedTuple):
    """A run's present encoder, judged.

    measures: the judge's, and the effective rank; found: the forecast; over: the baseline, "untrained" or "start,
    frozen"; gain: the chance of being better than the baseline; step: of the run; best_step: the judged step with the
    highest forecast; past: the chance that the encoder of best_step was better than the present one; images: an
    identifier of the images that were measured, equal for equal images.
    """

    path: Path
    data: str
    measures: dict[str, float]
    found: Forecast
    over: str
    gain: float
    step: int
    best_step: int
    past: float
    images: str

    @property
    def advice(self) -> str:
        """Advice for the user, in words."""
        if self.best_step != self.step and self.past >= SURE:
            return f"stop: it was better at step {self.best_step} (chance {self.past:.0%})"
        if self.gain < 1 - SURE:
            return f"below {self.over} (chance {1 - self.gain:.0%}): stop, or change the settings"
        if self.gain < SURE:
            return f"not clearly above {self.over} (chance {self.gain:.0%})"
        return f"above {self.over} (chance {self.gain:.0%})"


def judge(
    runs: Sequence[Path | str], *, images: int = IMAGES, device: str = "auto", workers: int | None = None
) -> list[Judged]:
    """Judge runs without labels, as `dualtemp judge` does; the best forecast comes first.

    Each run is measured on the same 256 images of its data (test images if there are enough), and the measures are
    written to RUN/judge.json. Forecasts compare only if the images are the same (`Judged.images`).

    Args:
        runs: folders of runs.
        images: number of images; the forecast was calibrated with 256.
        device: default "auto", the best one.
        workers: processes that read image files.
    """
    if images < FEWEST:
        raise UserError(f"images must be at least {FEWEST}, got {images}")
    check_workers(workers)
    found = [_judged(Path(run), images, device, workers) for run in runs]
    return sorted(found, key=lambda each: -each.found.score)


def _judged(path: Path, images: int, device: str, workers: int | None) -> Judged:
    folder = RunFolder.open(path)
    settings = folder.settings()
    encoder = run_encoder(path, device)
    splits = open_data(settings, folder.read_environment())
    some = judged_images(splits.test, splits.pretraining, images)
    if len(some) < FEWEST:
        raise UserError(f"{settings.data} has {len(some)} images: at least {FEWEST} are needed to judge an encoder")
    encoders = with_baselines(encoder)
    over = START if START in encoders else "untrained"
    measures = _measures(encoder, some, workers)
    now, then = forecast(measures), forecast(_measures(encoders[over], some, workers))
    step = next((line.get("step", 0) for line in kept_history(folder.history(), settings)[-1:]), 0)
    best, past = best_before(keep_judged(path, step, measures), step)
    return Judged(path, settings.data, measures, now, over, chance_better(now, then), step, best, past, _identity(some))


def _identity(images: ImageSet) -> str:
    """A fingerprint of the images by their content; that of their files if there are any, whatever the run's levels."""
    source = images.source.files or images.source
    digests = source.digests()
    return source.fingerprint(None, ()) if digests is None else blake2b(digests.tobytes(), digest_size=16).hexdigest()


def _measures(encoder: RunEncoder, images: ImageSet, workers: int | None) -> dict[str, float]:
    return judged_measures(torch.cat([found for _, found in encoder.features(images, workers=workers)]))
