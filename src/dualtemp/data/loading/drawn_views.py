"""Augmented views of given images in any epoch, from memory or from files."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet, ImageSource
from dualtemp.data.loading.loader import default_workers
from dualtemp.data.loading.workers import Reader, Request

Draw = tuple[int, int]  # (epoch, view); for files the view is 0 or 1


class Drawn(NamedTuple):
    """A batch: image numbers, int64 (N,) on the CPU, and views, each (N, C, size, size) on the device."""

    index: Tensor
    views: tuple[Tensor, ...]


def draw_views(
    images: ImageSet,
    views: Views,
    batches: Sequence[Tensor],
    draws: Sequence[Draw],
    device: torch.device,
    workers: int | None = None,
) -> Iterator[Drawn]:
    """Yield views of batches of images, given by number; each view is the one that training would see in that epoch.

    Files that cannot be read are left out. Training replaces them by other images, which would be misleading here.
    workers: processes that read files; default: `default_workers()`.
    """
    if (tensor := images.source.tensor) is None:
        yield from _read(
            images.source, views, batches, draws, device, default_workers() if workers is None else workers
        )
        return
    for index in batches:
        pixels = tensor[index.to(tensor.device)].to(device)
        yield Drawn(index, tuple(views(pixels, index, *draw) for draw in draws))


def whole_batches(found: Iterable[Drawn], size: int, most: int) -> Iterator[Drawn]:
    """Regroup into at most `most` batches of exactly `size` images; later images fill gaps left by unreadable files.

    If there are fewer than `size` images in all, yield them as one batch, provided there are at least two.
    """
    held, made = None, 0
    for drawn in found:
        held = drawn if held is None else _joined(held, drawn)
        while len(held.index) >= size:
            yield _cut(held, 0, size)
            made += 1
            if made == most:
                return
            held = _cut(held, size, len(held.index))
        held = held if len(held.index) else None
    if not made and held is not None and len(held.index) > 1:
        yield held


def _joined(one: Drawn, other: Drawn) -> Drawn:
    views = zip(one.views, other.views, strict=True)
    return Drawn(torch.cat([one.index, other.index]), tuple(torch.cat(pair) for pair in views))


def _cut(drawn: Drawn, start: int, end: int) -> Drawn:
    if (start, end) == (0, len(drawn.index)):
        return drawn
    return Drawn(drawn.index[start:end], tuple(view[start:end] for view in drawn.views))


def _read(
    source: ImageSource,
    views: Views,
    batches: Sequence[Tensor],
    draws: Sequence[Draw],
    device: torch.device,
    workers: int,
) -> Iterator[Drawn]:
    epochs = sorted({epoch for epoch, _ in draws})
    reader = Reader(source, views, max(map(len, batches), default=0), workers)
    requests = (Request(tuple(index.tolist()), epoch) for index in batches for epoch in epochs)
    try:
        found = reader.read(requests)
        for index in batches:
            made: dict[Draw, Tensor] = {}
            readable = torch.ones(len(index), dtype=torch.bool)
            for epoch, batch in zip(epochs, found, strict=False):  # this order, or zip would read one batch too many
                pixels = batch.pixels.to(device)
                readable &= torch.tensor([i == j for i, j in zip(batch.shown, index.tolist(), strict=True)])
                made |= {draw: views.after_crop(pixels[draw[1]], index, *draw) for draw in draws if draw[0] == epoch}
            yield Drawn(index[readable], tuple(made[draw][readable.to(device)] for draw in draws))
    finally:
        reader.close()
