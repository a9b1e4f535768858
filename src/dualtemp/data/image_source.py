"""Where the images of a set come from: one protocol for pixels in memory, files, and whatever else holds images.

All code uses the protocol; only code that is specific to pixels in memory looks at `tensor`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.loading.decode import (
    Encoded,
    Header,
    NotRead,
    UnreadableImage,
    read_bands,
    read_deep_gray,
    read_header,
    read_image,
    reason_of,
)
from dualtemp.data.loading.stacks import Levels, of_stack
from dualtemp.data.sources.fingerprint import (
    fingerprint_files,
    fingerprint_pixels,
    labels_fingerprint,
    names_fingerprint,
)
from dualtemp.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


class ImageSource(Protocol):
    """Images by number, 0 to N - 1: immutable, picklable, and read by many threads and processes at once.

    Subclass it as a frozen dataclass with these attributes as fields. For encoded images (JPEG, PNG, ...) only
    `content` is then left to write; for others `open` and `header` too.

    Attributes:
        place: where the images are, for messages: a folder, a file.
        names: one per image, all different, and independent of where the images are stored: a name decides on which
            side of a split its image falls. Empty if images have only numbers, as pixels in memory may. A tuple, or any
            other immutable sequence.
        channels: 1 (gray) or 3 (RGB), the channels of what `open` returns; for stacks any number, those of `pixels`.
        enough: pixels needed on the shorter side, so that much larger images may be decoded reduced (None: never).
        levels: the values that become 0 and 255: for stacks a pair per channel (stacks.py), for gray images of more
            than 8 bits one pair (gray_levels.py); None: by the rules of their formats.
        tensor: uint8 (N, C, H, W) if all pixels are in memory, else None.
        files: the source of pixels in memory, if it has more than 8 bits and can be read again with other levels.
    """

    place: str
    names: Sequence[str]
    channels: int
    enough: int | None = None
    levels: Levels | None = None
    tensor: Tensor | None = None
    files: "ImageSource | None" = None

    def content(self, i: int) -> bytes:
        """Return the encoded bytes of image i, by which images are compared; raises OSError."""
        ...

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.names)

    def open(self, i: int) -> "Image.Image":
        """Decode image i: upright, first frame, mode "L" or "RGB"; raises UnreadableImage(name, reason).

        For a stack, return its first channels for display: three as RGB, or the first of two as gray.
        """
        if of_stack(self.levels):
            return shown_bands(self.pixels(i))
        return read_image(self._encoded(i), self.names[i], self.channels, self.enough, self.levels)

    def pixels(self, i: int) -> Tensor:
        """Decode image i: uint8 (C, H, W), channels innermost in memory; raises UnreadableImage(name, reason)."""
        if not of_stack(self.levels):
            return to_tensor(self.open(i))
        return torch.from_numpy(read_bands(self._encoded(i), self.names[i], self.levels, self.enough)).permute(2, 0, 1)

    def stored_values(self, i: int) -> np.ndarray:
        """The values of a stack as they are stored, (H, W, C); raises UnreadableImage(name, reason)."""
        return read_bands(self._encoded(i), self.names[i], None)

    def deep_gray(self, i: int) -> np.ndarray | None:
        """The values of a gray image of more than 8 bits, (H, W, 1); None for others; raises UnreadableImage."""
        return read_deep_gray(self._encoded(i), self.names[i])

    def header(self, i: int) -> Header:
        """Height, width and PIL mode of image i, as it is stored; raises UnreadableImage(name, reason)."""
        return read_header(self._encoded(i), self.names[i])

    def picture(self, i: int, enough: int) -> "Image.Image":
        """Image i for display, in color if it has any; raises UnreadableImage(name, reason)."""
        return self.convert(channels=None if of_stack(self.levels) else 3, enough=enough).open(i)

    def path(self, i: int) -> Path | None:
        """The file of image i; None if it has none of its own."""
        return None

    def stamp(self, i: int) -> str:
        """A string that changes whenever image i does; should be cheap. Empty for pixels in memory."""
        try:
            return f"{blake2b(self.content(i), digest_size=16).hexdigest()}\n"
        except OSError:
            return "gone\n"

    def digests(self) -> np.ndarray | None:
        """Digests of the contents of all images, uint8 (N, D), if known without reading the images; else None."""
        return None

    def shards(self) -> np.ndarray | None:
        """The number of the shard that holds each image, int64 (N,); None if images are not in shards."""
        return None

    def read_ahead(self, index: Sequence[int]) -> None:
        """Announce that this process opens these images next, so that a slow source can request them together."""

    def is_gone(self) -> bool:
        """Whether all images have disappeared since they were listed, as when a disk is unplugged."""
        return False

    def take(self, index: Sequence[int]) -> Self:
        """Return the images of these numbers, in that order."""
        return self._replace(names=tuple(self.names[i] for i in index))

    def convert(self, channels: int | None = None, enough: int | None = None, levels: Levels | None = None) -> Self:
        """Return the same images with `channels` channels, reduced to about `enough` pixels if given.

        levels: read stacks, or gray images of more than 8 bits, with these. Raises ValueError if it is not possible.
        """
        if channels is not None and not _fits(channels, self.channels, levels or self.levels):
            raise ValueError(f"{self.channels} channels cannot become {channels}")
        channels = len(levels) if levels is not None and of_stack(levels) else channels
        given = {"channels": channels, "enough": enough, "levels": levels}
        return self._replace(**{name: value for name, value in given.items() if value is not None})

    def join(self, others: Sequence[Self]) -> Self:
        """Return these images and after them those of other sources of the same place."""
        return self._replace(names=tuple(name for each in (self, *others) for name in each.names))

    def fingerprint(self, labels: Tensor | None, classes: Sequence[str]) -> str:
        """32 hexadecimal digits of the content of all images and of their labels; reads everything."""
        return fingerprint_files(self.names, self.content, labels, classes)

    def identity(self, labels: Tensor | None, classes: Sequence[str]) -> dict[str, Any]:
        """What a run records to recognize its images; must be quick."""
        about: dict[str, Any] = {"fingerprint": None, "names": names_fingerprint(self.names)}
        if labels is not None:
            about |= {"labels": labels_fingerprint(labels, classes), "classes": labels_fingerprint(None, classes)}
        return about

    def _encoded(self, i: int) -> Encoded:
        try:
            return self.path(i) or self.content(i)
        except Exception as error:  # a damaged archive may raise nearly anything
            raise UnreadableImage(self.names[i], NotRead(reason_of(error))) from error

    def _replace(self, **changes: Any) -> Self:
        return replace(self, **changes)  # pyright: ignore[reportArgumentType]


def _fits(wanted: int, channels: int, levels: Levels | None) -> bool:
    """Whether images convert to `wanted` channels: gray and RGB into each other, stacks only to their own number."""
    if levels is not None and of_stack(levels):
        return wanted == len(levels)
    return wanted == channels or {wanted, channels} <= {1, 3}


@dataclass(frozen=True)
class FileImages(ImageSource):
    """Images in files of their own.

    root: folder that the names are relative to; names: relative posix names, sorted (within each part of
    a joined set); the others as in `ImageSource`.
    """

    root: Path
    names: Sequence[str]
    channels: int = 3
    enough: int | None = None
    levels: Levels | None = None

    @property
    def place(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The folder."""
        return str(self.root)

    def path(self, i: int) -> Path:
        """Return the path of image i."""
        return self.root / self.names[i]

    def content(self, i: int) -> bytes:
        """Return the bytes of the file."""
        return self.path(i).read_bytes()

    def stamp(self, i: int) -> str:
        """Length and times of the file."""
        try:
            found = os.stat(self.path(i))
        except OSError:
            return "gone\n"
        # Programs can set st_mtime at will, but not st_ctime.
        return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\n"

    def is_gone(self) -> bool:
        """Whether the folder is gone."""
        return not self.root.exists()


@dataclass(frozen=True, eq=False)
class TensorImages(ImageSource):
    """Pixels in memory, uint8 (N, C, H, W): .npz files, named sets, small images of one size."""

    tensor: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    files: ImageSource | None = None
    levels: Levels | None = None
    place = "memory"
    names = ()

    @property
    def channels(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """C."""
        return self.tensor.shape[1]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.tensor)

    def open(self, i: int) -> "Image.Image":
        """Image i as gray (one or two channels) or RGB (the first three)."""
        return shown_bands(self.tensor[i].cpu())

    def pixels(self, i: int) -> Tensor:
        """Image i, (C, H, W)."""
        return self.tensor[i]

    def picture(self, i: int, enough: int) -> "Image.Image":
        """Image i as it is."""
        return self.open(i)

    def header(self, i: int) -> Header:
        """The header, the same for all images."""
        _, channels, height, width = self.tensor.shape
        return Header(height, width, _MODES.get(channels, f"{channels} channels"))

    def deep_gray(self, i: int) -> np.ndarray | None:
        """The values in the file of image i."""
        return None if self.files is None else self.files.deep_gray(i)

    def content(self, i: int) -> bytes:
        """Return the pixels of image i, (C, H, W)."""
        return np.ascontiguousarray(self.tensor[i].cpu().numpy()).tobytes()

    def stamp(self, i: int) -> str:
        """Empty: the fingerprint of the whole set is quick."""
        return ""

    def take(self, index: Sequence[int]) -> "TensorImages":
        """Return the images of these numbers; a range copies nothing."""
        files = None if self.files is None else self.files.take(index)
        if isinstance(index, range):
            return replace(self, tensor=self.tensor[index.start : index.stop : index.step], files=files)
        where = torch.as_tensor(index, dtype=torch.int64, device=self.tensor.device)  # int64 even if index is empty
        return replace(self, tensor=self.tensor[where], files=files)

    def convert(
        self, channels: int | None = None, enough: int | None = None, levels: Levels | None = None
    ) -> "TensorImages":
        """Convert RGB to gray as Pillow does, and gray to RGB. Pixels in memory have 8 bits and are never reduced.

        levels: if the files have more than 8 bits, they are read again with these.
        """
        if levels not in (None, self.levels) and self.files is not None:
            return self._read_again(levels).convert(channels)
        if channels in (None, self.channels):
            return self
        files = None if self.files is None else self.files.convert(channels=channels)
        if (self.channels, channels) == (1, 3):
            return replace(self, tensor=self.tensor.expand(-1, 3, -1, -1), files=files)
        if (self.channels, channels) == (3, 1):
            return replace(self, tensor=_gray(self.tensor), files=files)
        raise ValueError(f"{self.channels} channels cannot become {channels}")

    def _read_again(self, levels: Levels | None) -> "TensorImages":
        assert self.files is not None
        files, tensor = self.files.convert(levels=levels), torch.empty_like(self.tensor)
        try:
            for i in range(len(files)):
                tensor[i] = files.pixels(i)
        except (UnreadableImage, RuntimeError) as error:  # missing, or of another size than when first read
            raise UserError(f"{files.place}: an image has changed while it was read, {reason_of(error)}") from None
        return replace(self, tensor=tensor, files=files, levels=levels)

    def join(self, others: Sequence["TensorImages"]) -> "TensorImages":
        """Return these images and after them the others."""
        tensor = torch.cat([self.tensor, *(each.tensor for each in others)])
        more = [each.files for each in others]
        known = self.files is not None and None not in more
        return replace(self, tensor=tensor, files=self.files.join(more) if known else None)  # pyright: ignore

    def fingerprint(self, labels: Tensor | None, classes: Sequence[str]) -> str:
        """32 hexadecimal digits of pixels and labels."""
        return fingerprint_pixels(self.tensor, labels, classes)

    def identity(self, labels: Tensor | None, classes: Sequence[str]) -> dict[str, Any]:
        """The fingerprint."""
        return {"fingerprint": self.fingerprint(labels, classes)}


def to_tensor(image: "Image.Image") -> Tensor:
    """PIL image, mode L or RGB -> uint8 (C, H, W), channels innermost in memory."""
    pixels = torch.from_numpy(np.array(image))
    return pixels.unsqueeze(0) if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def shown_bands(pixels: Tensor) -> "Image.Image":
    """uint8 (C, H, W) -> a picture for display: gray for one or two channels, else the first three as RGB."""
    from PIL import Image

    array = pixels.numpy()
    return Image.fromarray(np.ascontiguousarray(array[0] if len(array) < 3 else array[:3].transpose(1, 2, 0)))


def as_source(pixels: Tensor | ImageSource) -> ImageSource:
    """Return the source that `ImageSet.pixels` is, or the one that holds these pixels in memory."""
    return TensorImages(pixels) if isinstance(pixels, Tensor) else pixels


def _gray(pixels: Tensor) -> Tensor:
    """uint8 (N, 3, H, W) -> uint8 (N, 1, H, W), as Pillow converts RGB to L."""
    weights = torch.tensor([19595, 38470, 7471], dtype=torch.int32, device=pixels.device).view(1, 3, 1, 1)
    parts = [
        ((part.to(torch.int32) * weights).sum(1, keepdim=True, dtype=torch.int32) + 0x8000 >> 16).to(torch.uint8)
        for part in pixels.split(4096)
    ]
    return torch.cat(parts)
