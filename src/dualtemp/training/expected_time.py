"""How long a run will take: a few steps of this very framework on these very images, measured before it starts."""

import copy
import time
from typing import Any

import torch

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data.loader import Loader, evaluation_batches
from dualtemp.training.loop import memory_format
from dualtemp.training.online import ALIGNED_IMAGES
from dualtemp.training.optimizers import build_optimizer
from dualtemp.training.training_data import TrainingData

IMAGES = 32  # of a measured step: time grows with the batch, and a large one would take long
SECONDS = 2.0  # of steps; one is always measured, and one before it that does not count


def expected_seconds(
    chosen: Settings, data: TrainingData, method: Any, device: torch.device, workers: int | None = None
) -> float:
    """Seconds of the whole run, from a step and an evaluation of some images. The framework stays as it is."""
    copied = copy.deepcopy(method).to(device)
    if chosen.channels_last:
        copied.to(memory_format=torch.channels_last)
    # On a CPU readers compete with the network for the cores, and what they have read ahead would look like no work.
    learning = seconds_of_step(copied, chosen, data, device, 0 if device.type == "cpu" else workers)
    measuring = seconds_of_evaluation(copied.network.backbone, data, device)
    seen = chosen.epochs * (len(data.images) // chosen.batch) * chosen.batch / distributed.world_size()
    looks = -(-chosen.epochs // chosen.evaluate_every)
    if data.bank is None or data.test is None:
        measured = min(len(data.images), 2000)
    else:
        measured = min(len(data.bank), chosen.knn_images) + len(data.test)
    measured += 2 * min(len(data.images), ALIGNED_IMAGES)
    return seen * learning + looks * measured * measuring


def seconds_of_step(
    method: Any, chosen: Settings, data: TrainingData, device: torch.device, workers: int | None
) -> float:
    """Seconds of an image in a step: reading, views, both passes, optimiser."""
    count = max(2, min(IMAGES, chosen.batch // distributed.world_size()))
    optimizer = build_optimizer(chosen.optimizer, method, chosen.momentum, chosen.weight_decay)
    steps, views = 0, chosen.framework.views
    method.train()
    with Loader(data.images, data.views, count, device=device, workers=workers, count=views) as loader:
        began = time.perf_counter()
        for batch in loader.batches(0):
            optimizer.zero_grad(set_to_none=True)
            batch = memory_format(batch, chosen.channels_last)
            method(batch.views, batch.labels, 0).loss.backward()
            optimizer.step()
            _wait(device)
            if steps == 0:
                began = time.perf_counter()  # the first starts workers and fills caches
            elif time.perf_counter() - began > SECONDS:
                steps += 1
                break
            steps += 1
        taken = time.perf_counter() - began
        if steps < 2:  # a set of one batch: what it took is all that is known
            return taken / count
    return taken / (steps - 1) / count


def seconds_of_evaluation(backbone: Any, data: TrainingData, device: torch.device) -> float:
    """Seconds of an image that is measured: reading and one pass without gradient."""
    some = data.images.take(range(min(3 * IMAGES, len(data.images))))
    backbone.eval()
    began, seen = time.perf_counter(), 0
    with torch.inference_mode():
        for number, batch in enumerate(evaluation_batches(some, data.views, IMAGES, device=device, workers=0)):
            backbone(batch.pixels.contiguous(memory_format=torch.channels_last))
            seen += len(batch.pixels)
            if number == 0 and len(some) > IMAGES:  # the first fills caches
                _wait(device)
                began, seen = time.perf_counter(), 0
    _wait(device)
    return (time.perf_counter() - began) / max(1, seen)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
