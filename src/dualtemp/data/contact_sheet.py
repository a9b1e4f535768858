"""A contact sheet: some images, each with the two views that the network would see of it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from dualtemp.atomic_write import whole_file
from dualtemp.data.augment.views import Views
from dualtemp.data.images import ImageSet, TensorImages
from dualtemp.data.loading.workers import Reader, Request
from dualtemp.data.sources.catalogue import DEFAULT_VIEW_SIZE
from dualtemp.data.subset import subset_index
from dualtemp.errors import UserError, writing

CELL = 128  # px; side of a cell, a multiple of 8, 32 and 64
GAP, TEXT, HEAD = 6, 18, 26
Row = tuple[str, list[Image.Image]]  # the label; the image, view 1, view 2
INK, FAINT, PAPER = (30, 30, 30), (110, 110, 110), (255, 255, 255)


def write_contact_sheet(
    images: ImageSet,
    out: Path,
    *,
    recipe: str = "paper",
    count: int = 12,
    size: int | None = None,
    seed: int = 0,
    epoch: int = 0,
) -> None:
    """Write a PNG: each of `count` images (balanced over the classes) with views 1 and 2 of one epoch, and its label.

    size: of the views in pixels; by default the images' own (the larger side), 224 for files.
    The views are exactly those of training with the same recipe, seed, epoch and size.
    """
    sheet = contact_sheet(images, recipe=recipe, count=count, size=size, seed=seed, epoch=epoch)
    with writing(out, "give a writable place with --out"), whole_file(out) as file:
        sheet.save(file, format="PNG")


def contact_sheet(
    images: ImageSet, *, recipe: str, count: int = 12, size: int | None = None, seed: int = 0, epoch: int = 0
) -> Image.Image:
    """Draw the sheet; see write_contact_sheet."""
    side = size or (DEFAULT_VIEW_SIZE if images.size is None else max(images.size))
    # With mean 0 and deviation 1, views are plain pixels.
    views = Views(recipe, side, seed, (0.0,) * images.channels, (1.0,) * images.channels)
    chosen = subset_index(images.labels, len(images), min(count, len(images)), seed)
    if images.labels is not None:  # sort by class, for the reader
        chosen = chosen[np.argsort(images.labels.cpu().numpy()[chosen], kind="stable")]
    rows = list((_rows if images.in_memory else _rows_read)(images, chosen, views, epoch))
    if not rows:
        raise UserError(f"{images.name}: none of {len(chosen)} images can be read; see `dualtemp data` on this source")
    title = f"{images.name}: {len(images):,} images, recipe {recipe}, {side} px, seed {seed}, epoch {epoch}"
    return _drawn(rows, title)


def _rows(images: ImageSet, chosen: np.ndarray, views: Views, epoch: int) -> Iterator[Row]:
    shown = images.take(chosen).source
    assert shown.tensor is not None
    both = [views(shown.tensor, torch.from_numpy(chosen), epoch, view) for view in (0, 1)]
    for row, i in enumerate(chosen.tolist()):
        yield _label(images, i), [shown.open(row).convert("RGB"), *(_picture(_bytes(view[row])) for view in both)]


def _rows_read(images: ImageSet, chosen: np.ndarray, views: Views, epoch: int) -> Iterator[Row]:
    """Read files as the loader does; an unreadable image has no row."""
    reader = Reader(images.source, views, batch=1, workers=0)
    for found in reader.read(Request((i,), epoch) for i in chosen.tolist()):
        if found.shown != found.request.index:  # another image stands in for an unreadable one
            continue
        (i,) = found.request.index
        crops, index = found.pixels, torch.tensor([i])
        both = [views.after_crop(crops[view], index, epoch, view)[0] for view in (0, 1)]
        yield _label(images, i), [images.source.open(i), *(_picture(_bytes(view)) for view in both)]


def _label(images: ImageSet, i: int) -> str:
    label = -1 if images.labels is None else int(images.labels[i])
    return images.classes[label] if label >= 0 else f"image {i}"


def _bytes(view: Tensor) -> Tensor:
    return (view.clamp(0, 1) * 255).round().to(torch.uint8)


def _picture(pixels: Tensor) -> Image.Image:
    """Make a picture of uint8 (C, H, W)."""
    return TensorImages(pixels.unsqueeze(0)).open(0).convert("RGB")


def _drawn(rows: list[Row], title: str) -> Image.Image:
    across = 2 if len(rows) > 4 else 1
    down = -(-len(rows) // across)
    wide, high = 3 * CELL + 4 * GAP, CELL + TEXT + GAP
    sheet = Image.new("RGB", (across * (wide + GAP) + GAP, HEAD + TEXT + down * high + GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    font, small = ImageFont.load_default(14), ImageFont.load_default(12)
    draw.text((2 * GAP, GAP), title, INK, font)
    for column in range(across):
        for place, word in enumerate(("image", "view 1", "view 2")):
            draw.text((GAP * 2 + column * (wide + GAP) + place * (CELL + GAP), HEAD), word, FAINT, small)
    for number, (label, pictures) in enumerate(rows):
        left = GAP * 2 + (number // down) * (wide + GAP)
        top = HEAD + TEXT + (number % down) * high
        draw.text((left, top), label[:48].encode("utf-8", "replace").decode(), INK, small)
        for place, picture in enumerate(pictures):
            sheet.paste(_fitted(picture), (left + place * (CELL + GAP), top + TEXT))
    return sheet


def _fitted(picture: Image.Image) -> Image.Image:
    """Fit a picture into a cell: enlarge small ones by a whole factor, so that pixels show; reduce large ones."""
    longest = max(picture.size)
    if longest > CELL:
        size = (max(1, picture.width * CELL // longest), max(1, picture.height * CELL // longest))
        return picture.resize(size, Image.Resampling.LANCZOS)
    times = CELL // longest
    return picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)
