"""A sample of a run's images without augmentation: features, names, labels, thumbnails."""

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

FEW = 200  # with fewer test images the sample is taken from the training images


@dataclass(frozen=True)
class CleanSample:
    """N readable images of a set, with all tensors on the CPU.

    part: "test" or "training"; index: int64 (N,), positions in `images`; features: (N, F); tiles: (N, C, tile, tile),
    empty if no pictures were requested.
    """

    images: ImageSet
    part: str
    index: Tensor
    features: Tensor
    tiles: Tensor

    @property
    def labels(self) -> Tensor:
        """Labels, int64 (N,); -1 for images without one."""
        if self.images.labels is None:
            return torch.full((len(self.index),), -1)
        return self.images.labels.cpu()[self.index]

    @property
    def names(self) -> list[str]:
        """File names, or numbers for images that are not files."""
        return [name_of(self.images, self.part, i) for i in self.index.tolist()]


def clean_sample(run: TrainedRun, most: int, pictures: bool = True) -> CleanSample:
    """Take at most `most` test images, or training images if fewer than 200 are held out; always the same ones.

    The sample is balanced by class. Files that cannot be read are left out.
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
        raise UserError(
            f"{images.name}: none of {len(chosen)} {part} images can be read; check it with `dualtemp data`"
        )
    return CleanSample(
        images, part, torch.cat(index), torch.cat(features), torch.cat(shown) if pictures else torch.empty(0)
    )


def name_of(images: ImageSet, part: str, i: int) -> str:
    """Return an image's name for display."""
    return images.image_name(i, f"{part} image ")


def label_of(images: ImageSet, i: int) -> str | None:
    """Return the name of an image's class, or its number if classes have no names; None if it has no label."""
    label = -1 if images.labels is None else int(images.labels[i])
    if label < 0:
        return None
    return images.classes[label] if label < len(images.classes) else str(label)
