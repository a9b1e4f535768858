"""The label-free judge during training: forecast kNN after each measured epoch, and compare it with earlier ones.

Its measures are kept in RUN/judge.json, so that a resumed run is compared with all of them. It is used only with
`stop_by_judge`, never by default: docs/judge.md says how rarely it is sure, and how often it is right.
"""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from dualtemp.config import Settings
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.data.training_data import TrainingData
from dualtemp.errors import UserError
from dualtemp.evaluation.features import image_features
from dualtemp.evaluation.judge import FEWEST, IMAGES, best_before, forecast, keep_judged
from dualtemp.evaluation.label_free import judged_images, judged_measures


def check_judge(settings: Settings, data: TrainingData) -> None:
    """Raise UserError if there are too few images for the judge."""
    count = len(judged_images(data.test, data.images, IMAGES))
    if settings.stop_by_judge and count < FEWEST:
        raise UserError(f"stop_by_judge needs {FEWEST} images or more to judge an encoder, there are {count}")


def judged(
    backbone: nn.Module, data: TrainingData, run: Path, step: int, device: torch.device, workers: int | None
) -> dict[str, float]:
    """Judge an encoder at a step of its run, and record the result; returns entries of metrics.jsonl."""
    images = judged_images(data.test, data.images, IMAGES)
    clean = evaluation_batches(images, data.views, device=device, workers=workers, problems={}, may_be_empty=False)
    features = image_features(backbone, (batch.pixels for batch in clean), device="cpu")
    measures = judged_measures(features)
    best, past = best_before(keep_judged(run, step, measures), step)
    return {"judged_knn": forecast(measures).knn, "judged_best_step": best, "judged_past": past if best < step else 0.0}


def describe_past(metrics: dict[str, Any]) -> str:
    """A sentence on what the judge found, and which encoder is kept."""
    return (
        f"after epoch {metrics['epoch']}, the label-free judge rates the encoder of step {metrics['judged_best_step']} "
        f"higher (chance {metrics['judged_past']:.0%}); the run keeps the encoder of the measurement before"
    )
