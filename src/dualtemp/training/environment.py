"""environment.json: on which machine, with which versions and from which data a run was made."""

import os
import platform
from importlib.metadata import version
from typing import Any

import torch

from dualtemp import __version__, distributed
from dualtemp.data.images import Splits
from dualtemp.data.training_data import TrainingData
from dualtemp.models.starts import Start
from dualtemp.training.pretrained import describe_start
from dualtemp.training.run_data import SPLIT, describe_part


def describe_environment(
    device: torch.device, splits: Splits, data: TrainingData, start: Start | None = None
) -> dict[str, Any]:
    """Versions, device, threads and processes of a run, and the fingerprints of its data.

    held_out: number of images of the train part that are held out to decide when to stop.
    """
    return {
        "dualtemp": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": version("torchvision"),
        "timm": version("timm"),
        "platform": platform.platform(),
        "device": str(device) if device.type != "cuda" else torch.cuda.get_device_name(device),
        "threads": torch.get_num_threads(),
        "processes": distributed.world_size(),
        "launch": os.environ.get("TORCHELASTIC_RUN_ID"),
        **({"slurm_job": os.environ["SLURM_JOB_ID"]} if "SLURM_JOB_ID" in os.environ else {}),
        "split": SPLIT,
        "train": describe_part(splits.train),
        "unlabelled": describe_part(splits.unlabeled),
        "test": describe_part(splits.test),
        **({} if data.held_out is None else {"held_out": len(data.held_out)}),
        "images": {
            "channels": data.images.channels,
            "size": data.views.size,
            "mean": list(data.views.mean),
            "std": list(data.views.std),
            **({} if data.views.crop is None else _resize(data)),
            **({} if data.views.levels is None else {"levels": [list(pair) for pair in data.views.levels]}),
            "classes": list(splits.train.classes),
        },
        **describe_start(start),
    }


def _resize(data: TrainingData) -> dict[str, Any]:
    return {"interpolation": data.views.interpolation, "crop": data.views.crop}
