"""What a run on shards must equal: the batches and the bits of a run on the folder."""

from pathlib import Path

import torch
from command_processes import OFTEN, Commands, halting, kill_where_it_halts, together
from run_contents import different, everything

from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import Loader

TINY = ("--backbone", "resnet_mini", "--image-size", "16", "--batch", "8", "--workers", "1", "--no-page")
MEAN, STD = (0.5,) * 3, (0.25,) * 3


def seen(images: ImageSet, world: int, workers: int, start: int = 0) -> tuple[list[int], torch.Tensor]:
    """Numbers of the images of an epoch from a step on, and both views, put together from all ranks."""
    made = []
    for rank in range(world):
        with Loader(images, Views("paper", 24, 3, MEAN, STD), 8, rank=rank, world=world, workers=workers) as loader:
            made.append([(batch.index, torch.stack(batch.views)) for batch in loader.batches(1, start)])
    steps = list(zip(*made, strict=True))
    index = [int(i) for step in steps for each, _ in step for i in each]
    return index, torch.cat([views for step in steps for _, views in step], dim=1)


def check_kill(commands: Commands, photos: Path, data: object, tmp_path: Path, count: int) -> None:
    """A run on `data` that is killed in an epoch and resumed has the bits of a run on the folder that was not."""
    run, reference = tmp_path / "run", tmp_path / "reference"
    words = ("train", *TINY, "--epochs", "3", "--warmup-epochs", "0")
    in_an_epoch = halting(".step-*.part", 2)
    kill_where_it_halts(
        *together(commands, *words, "--data", data, *OFTEN, "--out", run, count=count, first=in_an_epoch)
    )
    ended = [each.wait() for each in together(commands, "resume", run, "--no-page", "--workers", "1", count=count)]
    assert [each.code for each in ended] == [0] * count, "".join(each.err for each in ended)
    ended = [each.wait() for each in together(commands, *words, "--data", photos, "--out", reference, count=count)]
    assert [each.code for each in ended] == [0] * count, "".join(each.err for each in ended)
    assert different(everything(run), everything(reference)) == [".settings.data"]
