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
    """A run's backbone and how it wants its images.

    path: of the run; chosen: its settings; backbone: in eval mode, on the device; views: size and normalisation, for
    `evaluation_batches`; channels: of the images, 1 is grey; classes: names by label, empty if unknown; told: is told
    of how many images there are features, and of how many images they are wanted.
    """

    path: Path
    chosen: Settings
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

        Grey and colour are turned into what the encoder was trained on. Unreadable files are left out (the index tells
        what is there) and put into problems, name -> reason.

        Args:
            images: any set, in memory or in files.
            batch: images at once, default 256.
            workers: processes that read photographs, default one for each core but one.
            problems: collects unreadable files.
            mirrored: features that an image shares with its mirror image, the mean of both; twice the time.
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
        """Features float32 (B, F), on the CPU, of normalised views (B, C, size, size)."""
        return self.backbone(self.laid_out(views).to(self.device)).float().cpu()

    def laid_out(self, views: Tensor) -> Tensor:
        """Views as they lie best in memory for this encoder, if the run says so."""
        return views.contiguous(memory_format=torch.channels_last) if self.chosen.channels_last else views

    def fitted(self, images: ImageSet) -> ImageSet:
        """The images with the encoder's number of channels: gray from color, or color from gray."""
        try:
            return images if images.channels == self.channels else images.convert(self.channels)
        except ValueError:
            raise UserError(
                f"{images.name} has images of {images.channels} channels, the encoder of {self.path} wants "
                f"{self.channels}: give such images"
            ) from None


def run_encoder(path: Path, device: str = "auto") -> RunEncoder:
    """The encoder in a run folder: its backbone.safetensors and config.yaml; no checkpoint is needed.

    Args:
        path: of the run.
        device: default "auto", the best there is.
    """
    run = RunFolder.open(path)
    chosen, there = run.settings(), open_device(device)
    views, channels, classes = run_images(run, chosen)
    backbone = build_backbone(chosen.backbone, views.size, channels, seed=chosen.seed)
    initialize(backbone, path)
    backbone = backbone.to(there).eval().requires_grad_(False)
    if chosen.channels_last:
        backbone = backbone.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return RunEncoder(path, chosen, backbone, views, channels, classes, there)
