"""Judge encoders without labels: which of several runs on the same images to take, and whether to train on."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dualtemp.atomic_write import whole_file
from dualtemp.data.images import ImageSet
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.errors import UserError
from dualtemp.evaluation.baselines import with_baselines
from dualtemp.evaluation.judge import IMAGES, JUDGE_FILE, Forecast, chance_better, forecast, read_judged
from dualtemp.evaluation.label_free import cluster_learnability, intrinsic_dimension
from dualtemp.evaluation.spread import effective_rank
from dualtemp.runs.evaluated_measures import START
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import open_data

SURE = 0.8  # chance from which an advice is given without "perhaps"


class Judged(NamedTuple):
    """A run as it is now.

    measures: those of the judge, and the effective rank; found: the forecast; over: what it is compared with,
    "untrained" or "start, frozen"; gain: the chance of being better than that; step: of the run; best_step: the step
    with the highest forecast of all times that the run was judged; past: the chance that it was better then than now.
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

    @property
    def advice(self) -> str:
        """What to do, in words."""
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

    Each is measured on the same 256 images of its data, test images if there are so many, and its forecast is written
    to RUN/judge.json. Forecasts of runs on other data do not compare.

    Args:
        runs: folders of runs.
        images: number of images; the forecast was calibrated with 256.
        device: default "auto", the best one.
        workers: processes that read image files.
    """
    if images < 32:
        raise UserError(f"images must be at least 32, got {images}")
    found = [_judged(Path(run), images, device, workers) for run in runs]
    return sorted(found, key=lambda each: -each.found.score)


def _judged(path: Path, images: int, device: str, workers: int | None) -> Judged:
    folder = RunFolder.open(path)
    settings = folder.settings()
    encoder = run_encoder(path, device)
    splits = open_data(settings, folder.read_environment())
    part = splits.test if splits.test is not None and len(splits.test) >= images else splits.pretraining
    part = replace(part, labels=None, classes=())
    if len(part) < 32:
        raise UserError(f"{settings.data} has {len(part)} images: at least 32 are needed to judge an encoder")
    some = part.subset(min(images, len(part)))
    encoders = with_baselines(encoder)
    over = START if START in encoders else "untrained"
    measures = _measures(encoder, some, workers)
    now, then = forecast(measures), forecast(_measures(encoders[over], some, workers))
    step = next((line.get("step", 0) for line in folder.history()[-1:]), 0)
    kept = {**read_judged(path), step: {"measures": measures, "knn": now.knn, "low": now.low, "high": now.high}}
    _keep(path, kept)
    all_of_them = {each: forecast(entry["measures"]) for each, entry in kept.items()}
    best = max(all_of_them, key=lambda each: (all_of_them[each].score, each))
    past = chance_better(all_of_them[best], now)
    return Judged(path, settings.data, measures, now, over, chance_better(now, then), step, best, past)


def _measures(encoder: RunEncoder, images: ImageSet, workers: int | None) -> dict[str, float]:
    features = torch.cat([found for _, found in encoder.features(images, workers=workers)])
    return {
        "cluster_learnability": cluster_learnability(features),
        "intrinsic_dimension": intrinsic_dimension(features),
        "effective_rank": float(effective_rank(features)),
    }


def _keep(path: Path, judged: dict[int, Any]) -> None:
    """Write RUN/judge.json; a run that cannot be written to is judged all the same."""
    try:
        with whole_file(path / JUDGE_FILE) as file:
            file.write((json.dumps({str(step): judged[step] for step in sorted(judged)}, indent=1) + "\n").encode())
    except OSError:
        return
