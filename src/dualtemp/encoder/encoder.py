"""The encoder of a run, or of a pretrained start, ready for any images."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from torch import Tensor, nn

from dualtemp.config import Settings, complete, settings
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import EVALUATION_BATCH, evaluation_batches
from dualtemp.device import open_device
from dualtemp.errors import UserError
from dualtemp.models.backbones import build_backbone
from dualtemp.models.starts import Start, has_model_config, is_start_word
from dualtemp.models.weights import initialise
from dualtemp.runs.folder import RunFolder
from dualtemp.training.pretrained import find_start
from dualtemp.training.run_images import run_images

START_BATCH = 64  # anchors of a start that are looked at together; at 224 px more take much memory
NO_DATA = "none"  # what the settings of a start have in the place of data


@dataclass(frozen=True)
class RunEncoder:
    """A run's backbone, or a start's, and how it wants its images.

    path: of the run, or a start's word; chosen: its settings; backbone: in eval mode, on the device; views: size and
    normalisation, for `evaluation_batches`; channels: of the images, 1 is grey; classes: names by label, empty if
    unknown; fingerprint: 32 hexadecimal digits of its weights; told: is told of how many images there are features, and
    of how many images they are wanted.
    """

    path: Path
    chosen: Settings
    backbone: nn.Module
    views: Views
    channels: int
    classes: tuple[str, ...]
    device: torch.device
    fingerprint: str
    told: Callable[[int, int], None] | None = None

    @property
    def is_start(self) -> bool:
        """Whether these are pretrained weights that no run has trained further: there is no folder and no data."""
        return not RunFolder(self.path).config.is_file()

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
            if self.told is not None:
                self.told(int(each.index[-1]) + 1, len(images))
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
    """The encoder that a path or a word names: all commands find it here.

    Args:
        path: of a run (its backbone.safetensors and config.yaml are read; no checkpoint is needed); else a pretrained
            start, "imagenet", "timm:NAME" or a folder of timm.
        device: default "auto", the best there is.
    """
    if names_start(path):
        return start_encoder(find_start(str(path)), device)
    run = RunFolder.opened(path)
    chosen, there = run.settings(), open_device(device)
    views, channels, classes = run_images(run, chosen)
    backbone = build_backbone(chosen.backbone, views.size, channels, seed=chosen.seed)
    initialise(backbone, path)
    backbone = _frozen(backbone, chosen, there)
    fingerprint = blake2b(run.backbone.read_bytes(), digest_size=16).hexdigest()
    return RunEncoder(path, chosen, backbone, views, channels, classes, there, fingerprint)


def names_start(path: Path | str) -> bool:
    """Whether this names a pretrained start, not a run."""
    return is_start_word(path) or (not RunFolder(Path(path)).config.is_file() and has_model_config(Path(path)))


def start_encoder(start: Start, device: str = "auto") -> RunEncoder:
    """The encoder of a pretrained start as it is; it wants no training."""
    if start.network is None or start.input is None:
        raise UserError(
            f"{start.word}: its network or its input (mean, deviation, size) is not known: give a run, imagenet, "
            "timm:NAME or a folder of timm"
        )
    wanted, there = start.input, open_device(device)
    values = {"data": NO_DATA, "backbone": start.network, "init": start.word, "init_content": start.content}
    chosen = complete(settings({**values, "image_size": wanted.size, "knn": "auto", "batch": START_BATCH}), wanted.size)
    backbone = build_backbone(start.network, wanted.size, wanted.channels, seed=0)
    start.load_into(backbone)
    views = Views(chosen.recipe, wanted.size, 0, wanted.mean, wanted.std, wanted.interpolation, wanted.crop)
    backbone = _frozen(backbone, chosen, there)
    return RunEncoder(Path(start.word), chosen, backbone, views, wanted.channels, (), there, start.content)


def _frozen(backbone: nn.Module, chosen: Settings, device: torch.device) -> nn.Module:
    backbone = backbone.to(device).eval().requires_grad_(False)
    if chosen.channels_last:
        backbone = backbone.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return backbone
