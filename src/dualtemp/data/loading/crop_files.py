"""Read images and crop them to uint8 of one size: the job of a worker process for one part of a batch.

An image is decoded at full size unless even its smallest crop would be shrunk to half or less: then it is reduced by a
whole factor (a JPEG of 12 million pixels, for views of 128 px, takes half the time of decoding it at full size). The
resize is torch's antialiased bicubic (or bilinear) on uint8, the one that torchvision's v2 transforms use on tensors;
it takes half the time of Pillow's.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp.data.augment.philox import replacements
from dualtemp.data.augment.views import Views, evaluation_geometry
from dualtemp.data.image_source import ImageSource
from dualtemp.data.loading.decode import UnreadableImage

_DECODED_AT_ONCE = 8  # images held decoded while their crops are drawn together
_REPLACEMENTS = 16  # random ones; then the next images in order, so that a folder of mostly broken files still works
_MOST_TRIES = 1000
_LONGEST = 500  # longest side over shortest up to which an image is resized whole


@dataclass(frozen=True)
class Part:
    """Some images of a batch, by number, and where they go: slot and first row of the buffer.

    epoch None asks for the one clean view of evaluation instead of random ones.
    """

    slot: int
    row: int
    index: tuple[int, ...]
    epoch: int | None


@dataclass(frozen=True)
class Outcome:
    """The result of a part: the image shown in each row (None: none), unreadable files as (name, reason)."""

    shown: tuple[int | None, ...]
    problems: tuple[tuple[str, str], ...]


def read_part(part: Part, source: ImageSource, views: Views, buffer: Tensor) -> Outcome:
    """Fill rows of the buffer, uint8 (slots, views, batch, C, size, size), with the crops of a part.

    In training, an unreadable image is replaced by another, drawn like everything else from seed, epoch and index; the
    random numbers of the crops stay those of the requested image. In evaluation nothing is replaced.
    """
    shown: list[int | None] = []
    problems: dict[str, str] = {}
    source.read_ahead(part.index)
    for start in range(0, len(part.index), _DECODED_AT_ONCE):
        wanted = part.index[start : start + _DECODED_AT_ONCE]
        opened = [_open(i, part.epoch, source, views.seed, problems) for i in wanted]
        shown.extend(number for number, _ in opened)
        rows = buffer[part.slot, :, part.row + start : part.row + start + len(wanted)]
        if part.epoch is None:
            for row, (_, image) in enumerate(opened):
                if image is not None:
                    rows[0, row] = clean_crop(image, views.size, views.interpolation, views.crop)
        else:
            _crop_views(opened, wanted, part.epoch, views, rows)
    return Outcome(tuple(shown), tuple(problems.items()))


def enough_pixels(views: Views) -> int:
    """The shorter side at which neither the smallest crop of an image nor its clean view has to be enlarged."""
    shares = [min(each.scale) * min(*each.ratio, *(1 / r for r in each.ratio)) for each in views.recipe.both]
    return max(views.shorter_side, math.ceil(views.size / math.sqrt(min(shares))))


def resize(image: Tensor, height: int, width: int, interpolation: str = "bicubic") -> Tensor:
    """uint8 (C, H, W) -> uint8 (C, height, width), antialiased."""
    if image.shape[1:] == (height, width):
        return image
    if image.shape[0] == 1:  # torch has a fast path for three channels, but none for one
        tripled = image.permute(1, 2, 0).expand(-1, -1, 3).contiguous().permute(2, 0, 1)
        return resize(tripled, height, width, interpolation)[:1]
    return F.interpolate(image.unsqueeze(0), (height, width), mode=interpolation, antialias=True)[0]


def clean_crop(image: Tensor, size: int, interpolation: str = "bicubic", crop: float | None = None) -> Tensor:
    """The evaluation view before normalization: uint8 (C, H, W) -> uint8 (C, size, size)."""
    image = _middle(image)
    height, width, top, left = evaluation_geometry(image.shape[1], image.shape[2], size, crop)
    return resize(image, height, width, interpolation)[:, top : top + size, left : left + size]


def _middle(image: Tensor) -> Tensor:
    """Cut a very long image to its middle, where its central crop lies, instead of enlarging all of it."""
    height, width = image.shape[1:]
    for dim, longer, shorter in ((1, height, width), (2, width, height)):
        spare = (longer - _LONGEST * shorter) // 2
        if spare > 0:
            image = image.narrow(dim, spare, longer - 2 * spare)
    return image


def _crop_views(
    opened: list[tuple[int | None, Tensor | None]], wanted: tuple[int, ...], epoch: int, views: Views, rows: Tensor
) -> None:
    heights = torch.tensor([1 if image is None else image.shape[1] for _, image in opened])
    widths = torch.tensor([1 if image is None else image.shape[2] for _, image in opened])
    for view in range(len(rows)):
        boxes = views.crop_boxes(torch.tensor(wanted), epoch, view, heights, widths).tolist()
        for row, ((_, image), (top, left, height, width)) in enumerate(zip(opened, boxes, strict=True)):
            if image is not None:
                crop = image[:, top : top + height, left : left + width]
                rows[view, row] = resize(crop, views.size, views.size, views.interpolation)


def _open(
    index: int, epoch: int | None, source: ImageSource, seed: int, problems: dict[str, str]
) -> tuple[int | None, Tensor | None]:
    for i in _candidates(index, epoch, len(source), seed):
        if source.names[i] in problems:  # found earlier in this part
            continue
        try:
            return i, source.pixels(i)
        except UnreadableImage as unreadable:
            problems[unreadable.name] = unreadable.reason
    return None, None


def _candidates(index: int, epoch: int | None, count: int, seed: int) -> Iterator[int]:
    yield index
    if epoch is not None:
        yield from replacements(seed, epoch, index, count, _REPLACEMENTS)
        yield from ((index + step) % count for step in range(1, min(count, _MOST_TRIES)))
