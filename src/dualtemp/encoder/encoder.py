"""The trained encoder of a run, ready for any images."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dualtemp.config import Settings
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import EVALUATION_BATCH, evaluation_batches
from dualtemp.device import open_device
from dualtemp.errors import UserError
from dualtemp.models.backbones import build_backbone
from dualtemp.models.weights import initialize
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_images import run_images


@dataclass(frozen=True)
class RunEncoder:
    """A run's backbone, and how its images are prepared.

    path: the run's folder; settings: the run's; backbone: in eval mode, on the device; views: size and normalization,
    for `evaluation_batches`; channels: of the images, 1 is gray; classes: names by label, empty if unknown; progress:
    called with the number of images done, and of all.
    """

    path: Path
    settings: Settings
    backbone: nn.Module
    views: Views
    channels: int
    classes: tuple[str, ...]
    device: torch.device
    progress: Callable[[int, int], None] | None = None

    @property
    def width(self) -> int:
        """F, the number of features of an image."""
        return int(self.backbone.num_features)  # pyright: ignore

    def features(
        self,
        images: ImageSet,
        batch: int = EVALUATION_BATCH,
        workers: int | None = None,
        problems: dict[str, str] | None = None,
        mirrored: bool = False,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Index int64 (B,) and features float32 (B, F) of the images, in order, both on the CPU, batch by batch.

        Images are converted to gray or color, as the encoder was trained on. Unreadable files are left out, as the
        index shows, and added to problems, name -> reason.

        Args:
            images: any set, in memory or in files.
            batch: images at once, default 256.
            workers: processes that read image files, default one for each core but one.
            problems: collects unreadable files.
            mirrored: average the features of an image and its mirror image; takes twice the time.
        """
        shown = self.fitted(images)
        clean = evaluation_batches(
            shown, self.views, batch, device=self.device, workers=workers, problems={} if problems is None else problems
        )
        for each in clean:
            found = self.of_views(each.pixels)
            if self.progress is not None:
                self.progress(int(each.index[-1]) + 1, len(images))
            yield each.index, (found + self.of_views(each.pixels.flip(3))) / 2 if mirrored else found

    @torch.inference_mode()
    def of_views(self, views: Tensor) -> Tensor:
        """Features float32 (B, F), on the CPU, of normalized views (B, C, size, size)."""
        return self.backbone(self.in_memory_format(views).to(self.device)).float().cpu()

    def in_memory_format(self, views: Tensor) -> Tensor:
        """Views in the memory format of the run."""
        return views.contiguous(memory_format=torch.channels_last) if self.settings.channels_last else views

    def fitted(self, images: ImageSet) -> ImageSet:
        """The images with the encoder's number of channels: gray from color, or color from gray."""
        try:
            return images if images.channels == self.channels else images.convert(self.channels)
        except ValueError:
            raise UserError(
                f"{images.name} has images of {images.channels} channels, the encoder of {self.path} takes "
                f"{self.channels}: give such images"
            ) from None


def run_encoder(path: Path, device: str = "auto") -> RunEncoder:
    """Load the encoder of a run from backbone.safetensors and config.yaml; no checkpoint is needed.

    Args:
        path: the run's folder.
        device: default "auto", the best one.
    """
    run = RunFolder.open(path)
    settings, there = run.settings(), open_device(device)
    views, channels, classes = run_images(run, settings)
    backbone = build_backbone(settings.backbone, views.size, channels, seed=settings.seed)
    initialize(backbone, path)
    backbone = backbone.to(there).eval().requires_grad_(False)
    if settings.channels_last:
        backbone = backbone.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return RunEncoder(path, settings, backbone, views, channels, classes, there)
