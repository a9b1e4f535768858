"""Estimate how long a run will take, from a few real steps of its framework on its images."""

import copy
import time
from collections.abc import Callable
from typing import Any

import torch

from dualtemp import distributed
from dualtemp.config import Settings
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import Loader, evaluation_batches
from dualtemp.data.training_data import TrainingData
from dualtemp.evaluation.online import ALIGNED_IMAGES
from dualtemp.training.run_encoder import RunEncoder
from dualtemp.training.train_step import TrainStep

IMAGES = 32  # in a timed step; time is proportional to the batch, and a large one would take long
SECONDS = 2.0  # of timed steps; at least one, after a first one that does not count


def expected_seconds(
    settings: Settings,
    data: TrainingData,
    method: Any,
    device: torch.device,
    workers: int | None = None,
    teacher: RunEncoder | None = None,
) -> float:
    """Estimate the seconds of the whole run from a step and an evaluation of some images; the framework is not changed.

    Every process must call it, because a step's loss may wait for the others' keys. teacher: on rank 0 of a distilled
    run; it encodes every image once before the first step.
    """
    copied = copy.deepcopy(method).to(device)
    # No workers on a CPU: they compete with the network for cores, and images read ahead would seem to cost nothing.
    learning = seconds_of_step(copied, settings, data, device, 0 if device.type == "cpu" else workers)
    backbone = copied.network.backbone.eval()
    measuring, looking = distributed.run_on_rank0(
        lambda: (
            seconds_of_evaluation(_channels_last(backbone), data.images, data.views, device),
            0.0
            if teacher is None
            else seconds_of_evaluation(teacher.of_views, teacher.fitted(data.images), teacher.views),
        )
    )
    seen = settings.epochs * (len(data.images) // settings.batch) * settings.batch / distributed.world_size()
    looks = -(-settings.epochs // settings.evaluate_every)
    if data.bank is None or data.test is None:
        measured = min(len(data.images), 2000)
    else:
        measured = min(len(data.bank), settings.knn_images) + len(data.test)
    measured += 2 * min(len(data.images), ALIGNED_IMAGES)
    return seen * learning + looks * measured * measuring + len(data.images) * looking


def seconds_of_step(
    method: Any, settings: Settings, data: TrainingData, device: torch.device, workers: int | None
) -> float:
    """Seconds per image of this process in a step: reading, views, passes, optimizer. Every process must call it."""
    rank, world = distributed.rank(), distributed.world_size()
    share = settings.batch // world
    count, chunk = min(IMAGES, share), settings.chunk
    if chunk is not None and count < share and chunk < share:
        chunk = min(chunk, count // 2)  # so that chunks, which take two passes, are timed too
    # Without torch.compile, whose start-up would take longer than everything timed here.
    small = settings.model_copy(update={"batch": count * world, "chunk": chunk, "compile": False, "warmup_heads": 0.0})
    step, steps, views = TrainStep(small, method, data, device), 0, settings.framework.views
    with Loader(
        data.images, data.views, small.batch, device=device, rank=rank, world=world, workers=workers, count=views
    ) as loader:
        began = time.perf_counter()
        for batch in loader.batches(0):
            step(batch, 0, factor=0.0)  # at learning rate 0, since spoiled weights may change the time
            _wait(device)
            steps += 1
            if steps == 1:
                began = time.perf_counter()  # not counting the first step, which starts workers and fills caches
                continue
            (enough,) = distributed.agree(time.perf_counter() - began > SECONDS)  # so that all stop after the same step
            if enough:
                break
        taken = time.perf_counter() - began
        if steps < 2:  # the set has a single batch: use its time
            return taken / count
    return taken / (steps - 1) / count


def _channels_last(backbone: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda pixels: backbone(pixels.contiguous(memory_format=torch.channels_last))


def seconds_of_evaluation(
    encode: Callable[[torch.Tensor], torch.Tensor],
    images: ImageSet,
    views: Views,
    device: torch.device | str = "cpu",
) -> float:
    """Seconds per evaluated image: reading and one pass without gradient."""
    device, some = torch.device(device), images.take(range(min(3 * IMAGES, len(images))))
    began, seen = time.perf_counter(), 0
    with torch.inference_mode():
        for number, batch in enumerate(evaluation_batches(some, views, IMAGES, device=device, workers=0)):
            encode(batch.pixels)
            seen += len(batch.pixels)
            if number == 0 and len(some) > IMAGES:  # do not count the first batch, which fills caches
                _wait(device)
                began, seen = time.perf_counter(), 0
    _wait(device)
    return (time.perf_counter() - began) / max(1, seen)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
