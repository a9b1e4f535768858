"""Some images of a run's data as the encoder sees them without augmentation: features, names, labels, thumbnails."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dualtemp.analysis.thumbnails import tiles
from dualtemp.analysis.trained_run import TrainedRun
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import evaluation_batches
from dualtemp.data.subset import subset_index
from dualtemp.errors import UserError
from dualtemp.evaluation.features import evaluating

FEW = 200  # test images that are too few to be looked at, if there are more training images


@dataclass(frozen=True)
class CleanSample:
    """N readable images of a set: their numbers there, int64 (N,), features (N, F) and tiles (N, C, tile, tile).

    part: "test" or "training"; all tensors are on the CPU; tiles are empty where they are not wanted.
    """

    images: ImageSet
    part: str
    index: Tensor
    features: Tensor
    tiles: Tensor

    @property
    def labels(self) -> Tensor:
        """int64 (N,); -1 where there is none."""
        if self.images.labels is None:
            return torch.full((len(self.index),), -1)
        return self.images.labels.cpu()[self.index]

    @property
    def names(self) -> list[str]:
        """Of files their names, else numbers."""
        return [name_of(self.images, self.part, i) for i in self.index.tolist()]


def clean_sample(run: TrainedRun, most: int, pictures: bool = True) -> CleanSample:
    """At most so many test images, or training images where few or none are held out; the same ones every time.

    Classes have equal shares. Files that cannot be read are left out.
    """
    images, part = run.data.images, "training"
    if run.data.test is not None and len(run.data.test) >= min(FEW, len(run.data.images)):
        images, part = run.data.test, "test"
    chosen = torch.from_numpy(subset_index(images.labels, len(images), min(most, len(images)), seed=0))
    backbone, views = run.method.network.backbone, run.data.views
    index, features, shown = [], [], []
    with evaluating(backbone), torch.no_grad():
        for batch in evaluation_batches(images.take(chosen), views, device=run.device):
            index.append(chosen[batch.index])
            features.append(backbone(batch.pixels).float().cpu())
            if pictures:
                shown.append(tiles(views.unnormalize(batch.pixels)))
    if not index:
        raise UserError(f"{images.name}: none of {len(chosen)} {part} images can be read; see `dualtemp data` on it")
    return CleanSample(
        images, part, torch.cat(index), torch.cat(features), torch.cat(shown) if pictures else torch.empty(0)
    )


def name_of(images: ImageSet, part: str, i: int) -> str:
    """An image's name for people."""
    return images.image_name(i, f"{part} image ")


def label_of(images: ImageSet, i: int) -> str | None:
    """The name of an image's class, its number where classes have no names; None if it is unknown."""
    label = -1 if images.labels is None else int(images.labels[i])
    if label < 0:
        return None
    return images.classes[label] if label < len(images.classes) else str(label)
