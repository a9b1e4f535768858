"""Time a real training step (views, encoder, loss, optimizer) and a small run."""

import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from dualtemp.config import complete, settings
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import Loader
from dualtemp.data.normalization import normalization
from dualtemp.data.training_data import TrainingData
from dualtemp.frameworks import build_framework
from dualtemp.grids.cost import WITH_GRADIENT
from dualtemp.training.launch import ExecutionOptions
from dualtemp.training.start import start
from dualtemp.training.train_step import TrainStep

STEPS = 4


def measure_step(backbone: str, image_size: int, channels: int) -> float:
    """Return the seconds of one image's forward pass, from the fastest of a few SimCo steps on one thread."""
    batch = 64 if image_size <= 32 and backbone == "resnet_mini" else 8
    chosen = complete(settings({"data": "x", "method": "simco", "backbone": backbone, "batch": batch}), image_size)
    pixels = torch.randint(256, (batch * STEPS, channels, image_size, image_size), dtype=torch.uint8)
    mean, std = normalization("", pixels)
    views = Views(chosen.recipe, image_size, 0, mean, std)
    device, data = torch.device("cpu"), TrainingData(ImageSet("x", pixels, channels=channels), None, None, views, 0)
    step = TrainStep(chosen, build_framework(chosen, channels, 0), data, device)
    threads, best = torch.get_num_threads(), float("inf")
    torch.set_num_threads(1)
    try:
        with Loader(data.images, views, batch, device=device) as loader:
            began = time.perf_counter()
            for images in loader.batches(0):
                step(images, 0, factor=1.0)
                best, began = min(best, time.perf_counter() - began), time.perf_counter()
    finally:
        torch.set_num_threads(threads)
    return best / batch / (WITH_GRADIENT * chosen.framework.passes(chosen.options).query)


def measured_step(backbone: str, image_size: int, channels: int) -> float:
    """Former name of `measure_step`."""
    warnings.warn("measured_step is now measure_step", DeprecationWarning, stacklevel=2)
    return measure_step(backbone, image_size, channels)


def measure_small_run() -> float:
    """Return the seconds of a five-step run on one thread; it runs twice, so that imports are not counted."""
    chosen = settings(
        {"data": "digits", "method": "simco", "backbone": "resnet_mini", "epochs": 1, "batch": 64, "subset": 320}
    )
    seconds, threads = 0.0, torch.get_num_threads()
    try:
        for _ in range(2):
            with TemporaryDirectory() as folder:
                began = time.perf_counter()
                start(chosen, Path(folder) / "run", ExecutionOptions("cpu", threads=1, quiet=True))
                seconds = time.perf_counter() - began
    finally:
        torch.set_num_threads(threads)
    return seconds
