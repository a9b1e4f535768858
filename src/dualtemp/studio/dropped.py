"""Encode a picture that was dropped onto the page with the map's encoder."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dualtemp.data.images import ImageSet, ImageSource
from dualtemp.data.loading.stacks import Levels
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.errors import UserError
from dualtemp.runs.folder import RunFolder
from dualtemp.studio.collection import Collection
from dualtemp.studio.space import Space

NAME = "the picture"


@dataclass(frozen=True)
class OnePicture(ImageSource):
    """A source of one encoded picture that is not in a file."""

    encoded: bytes
    channels: int = 3
    enough: int | None = None
    levels: Levels | None = None
    place = "the page"
    names = (NAME,)

    def content(self, i: int) -> bytes:
        """Return the picture's bytes."""
        return self.encoded


def features_of_picture(space: Space, images: Collection, encoded: bytes, device: str) -> np.ndarray:
    """Features (F,) of an encoded picture, read in the same way as the collection's images: as files, or as pixels.

    Raises UnreadableImage.
    """
    encoder = space_encoder(space, device)
    source = OnePicture(encoded, encoder.channels, levels=encoder.views.levels)
    seen = source.pixels(0)
    in_memory = images.images is not None and images.images.images.in_memory
    pixels = seen.unsqueeze(0) if in_memory else source
    shown = ImageSet(NAME, pixels, channels=encoder.channels)
    return next(iter(encoder.features(shown, 1, 0)))[1][0].numpy()


def space_encoder(space: Space, device: str) -> RunEncoder:
    """The encoder of a space, loaded once; raises UserError if it is unknown."""
    if space.encoder is None:
        raise UserError("the encoder of these features is not known: start the studio with --encoder RUN or imagenet")
    weights = RunFolder(space.encoder).backbone
    encoder = _loaded(space.encoder, device, weights.stat().st_mtime_ns if weights.is_file() else 0)
    if encoder.width != space.features.shape[1]:
        raise UserError(
            f"{space.encoder} makes {encoder.width} features an image, these have {space.features.shape[1]}: "
            "give --encoder the one that made them"
        )
    if space.fingerprint not in ("", encoder.fingerprint):
        raise UserError(f"{space.title} has been trained further since the map was made: see the images by it again")
    return encoder


@lru_cache(maxsize=4)
def _loaded(path: Path, device: str, written: int) -> RunEncoder:
    """Load an encoder once; written: when its weights were written, so that changed ones are loaded again."""
    return run_encoder(path, device)
