"""The encoder of a run, of a pretrained start or of an ONNX file, ready for any images."""

import copy
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dualtemp.config import Settings, complete, settings
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.loader import EVALUATION_BATCH, evaluation_batches
from dualtemp.device import open_device
from dualtemp.errors import UserError
from dualtemp.models.backbones import build_backbone
from dualtemp.models.model_input import ModelInput
from dualtemp.models.onnx_network import OnnxNetwork, input_beside
from dualtemp.models.starts import Start, has_model_config, is_start_word, similar_start
from dualtemp.models.weights import initialize
from dualtemp.runs.folder import RunFolder
from dualtemp.text import did_you_mean
from dualtemp.training.pretrained import find_start
from dualtemp.training.run_images import run_images

START_BATCH = 64  # anchors of a start that are analyzed together; at 224 px more take much memory
PIECE = 8 * 224**2  # pixels that a CPU encodes at once, so that activations stay in its cache
NO_DATA = "none"  # the `data` in the settings of a start


@dataclass(frozen=True)
class RunEncoder:
    """The backbone of a run or of a pretrained start, and how its images are prepared.

    path: the run's folder, or the word of a start; settings: the run's; backbone: in eval mode, on the device; views:
    size and normalization, for `evaluation_batches`; channels: of the images, 1 is gray; classes: names by label, empty
    if unknown; fingerprint: 32 hexadecimal digits of the weights, so that features of two encoders are never mixed;
    progress: called with the number of images done, and of all; quick: decode files no larger than needed, see
    `evaluation_batches`; in_pieces: let a CPU encode a few large images at a time, which is faster with EfficientNets;
    the last bits of features may depend on it.
    """

    path: Path
    settings: Settings
    backbone: nn.Module
    views: Views
    channels: int
    classes: tuple[str, ...]
    device: torch.device
    fingerprint: str
    progress: Callable[[int, int], None] | None = None
    quick: bool = False
    in_pieces: bool = True

    @property
    def is_start(self) -> bool:
        """Whether this is a pretrained start rather than a run: it has no folder and no data."""
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

        Images are converted to gray or color, whichever the encoder was trained on. Unreadable files are missing from
        the index, and added to problems, name -> reason.

        Args:
            images: any set, in memory or in files.
            batch: images at once, default 256.
            workers: processes that read image files, default one for each core but one.
            problems: collects unreadable files.
            mirrored: average the features of an image and its mirror image; takes twice the time.
        """
        shown = self.fitted(images)
        how: dict[str, Any] = {"device": self.device, "workers": workers, "quick": self.quick}
        clean = evaluation_batches(shown, self.views, batch, problems={} if problems is None else problems, **how)
        for each in clean:
            found = self.of_views(each.pixels)
            if self.progress is not None:
                self.progress(int(each.index[-1]) + 1, len(images))
            yield each.index, (found + self.of_views(each.pixels.flip(3))) / 2 if mirrored else found

    @torch.inference_mode()
    def of_views(self, views: Tensor) -> Tensor:
        """Features float32 (B, F), on the CPU, of normalized views (B, C, size, size); UserError if not finite."""
        parts = views.split(self.piece or len(views)) if len(views) else (views,)
        found = [self.backbone(self.in_memory_format(part).to(self.device)).float().cpu() for part in parts]
        features = found[0] if len(found) == 1 else torch.cat(found)
        if not features.isfinite().all():
            remedy = "get its weights again" if self.is_start else "train it again, with a lower --lr"
            raise UserError(f"{self.path}: the encoder's features are not finite, so they say nothing; {remedy}")
        return features

    @property
    def piece(self) -> int | None:
        """Images that are encoded at once; None for a whole batch."""
        return max(1, PIECE // self.views.size**2) if self.in_pieces and self.device.type == "cpu" else None

    def in_memory_format(self, views: Tensor) -> Tensor:
        """Views in the memory format of the run."""
        return views.contiguous(memory_format=torch.channels_last) if self.settings.channels_last else views

    def fitted(self, images: ImageSet) -> ImageSet:
        """The images with the encoder's number of channels: gray from color, or color from gray."""
        try:
            if images.channels == self.channels and self.views.levels in (None, images.source.levels):
                return images
            return images.convert(self.channels, self.views.levels)
        except ValueError:
            raise UserError(
                f"{images.name} has images of {images.channels} channels, the encoder of {self.path} takes "
                f"{self.channels}: give such images"
            ) from None


def run_encoder(path: Path, device: str = "auto") -> RunEncoder:
    """Load the encoder that a path or a word names; all commands use this function.

    Args:
        path: the folder of a run (backbone.safetensors, config.yaml and, if it began from a start, environment.json are
            read; no checkpoint is needed); else a pretrained start: "imagenet", "timm:NAME" or a folder of timm.
        device: default "auto", the best one.
    """
    if names_start(path):
        return start_encoder(find_start(str(path)), device)
    run = open_run(path)
    own, there = run.settings(), open_device(device)
    views, channels, classes = run_images(run, own)
    backbone = build_backbone(own.backbone, views.size, channels, seed=own.seed)
    fingerprint = _initialize(backbone, path, run.backbone)
    backbone = _frozen(backbone, own, there)
    return RunEncoder(path, own, backbone, views, channels, classes, there, fingerprint)


def weights_fingerprint(content: bytes) -> str:
    """32 hexadecimal digits of a weights file's content."""
    return blake2b(content, digest_size=16).hexdigest()


def with_weights(encoder: RunEncoder, path: Path) -> RunEncoder:
    """Return the same encoder with the weights of a file."""
    backbone = copy.deepcopy(encoder.backbone)
    return replace(encoder, fingerprint=_initialize(backbone, path, path), backbone=backbone)


def _initialize(backbone: nn.Module, path: Path, file: Path) -> str:
    """Load the weights of a path and return their file's fingerprint, even if a run replaces it in between."""
    while True:
        before = file.stat().st_mtime_ns if file.is_file() else None
        initialize(backbone, path)
        fingerprint = weights_fingerprint(file.read_bytes())
        if file.stat().st_mtime_ns == before:
            return fingerprint


def names_start(path: Path | str) -> bool:
    """Whether this names a pretrained start, not a run."""
    return is_start_word(path) or (not RunFolder(Path(path)).config.is_file() and has_model_config(Path(path)))


def open_run(path: Path) -> RunFolder:
    """Open the folder of a run; the UserError for a word that is neither run nor start suggests the nearest start."""
    if not os.path.exists(path) and (meant := similar_start(str(path))) is not None:
        raise UserError(f"{path} is not a run, and no start is called so: {did_you_mean([repr(meant)])}")
    return RunFolder.open(path)


def start_encoder(start: Start, device: str = "auto") -> RunEncoder:
    """Return the encoder of a pretrained start as it is, without any training."""
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
    backbone = _frozen(backbone, chosen, there)
    views = _views_of(chosen, wanted)
    return RunEncoder(Path(start.word), chosen, backbone, views, wanted.channels, (), there, start.content)


def onnx_encoder(path: Path) -> RunEncoder:
    """Return the encoder in an ONNX file, run by onnxruntime on the CPU; a file beside it describes its input."""
    network, wanted = OnnxNetwork(path), input_beside(path)
    network.prepare(wanted)
    values = {"data": NO_DATA, "backbone": "onnx", "image_size": wanted.size, "channels_last": False}
    chosen = complete(settings(values), wanted.size)
    content = blake2b(json.dumps(wanted.as_json(), sort_keys=True).encode() + path.read_bytes(), digest_size=16)
    views, there = _views_of(chosen, wanted), open_device("cpu")
    return RunEncoder(path, chosen, network, views, wanted.channels, (), there, content.hexdigest())


def _views_of(chosen: Settings, wanted: ModelInput) -> Views:
    return Views(chosen.recipe, wanted.size, 0, wanted.mean, wanted.std, wanted.interpolation, wanted.crop)


def _frozen(backbone: nn.Module, chosen: Settings, device: torch.device) -> nn.Module:
    backbone = backbone.to(device).eval().requires_grad_(False)
    if chosen.channels_last:
        backbone = backbone.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return backbone
