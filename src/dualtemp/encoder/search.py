"""The images nearest to a photograph, by the cosine of their features: exact, over features that stream by."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.data.images import FileImages, ImageSet, UnreadableImage
from dualtemp.data.loading.crop_files import to_tensor
from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.encoder.bank import bank_of
from dualtemp.encoder.embedding_reader import Rows
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.encoder.feature_records import Told
from dualtemp.encoder.image_list import ImageList
from dualtemp.encoder.pictures_by_name import PicturesByName
from dualtemp.errors import UserError
from dualtemp.losses.similarity import unit

EQUAL = 0.9999  # cosine of a photograph with itself, but for rounding in a file of features


class Near(NamedTuple):
    """An image that was found, and the cosine s of its features with the photograph's."""

    name: str
    label: str | None
    s: float


class Found(NamedTuple):
    """What lies nearest to each photograph, nearest first; the images; unreadable files that were passed over."""

    photos: list[Path]
    near: list[list[Near]]
    among: int
    pictures: PicturesByName
    unreadable: dict[str, str]


def search(
    run: Path | str,
    photos: Sequence[Path | str],
    *,
    data: Path | str | None = None,
    embeddings: Path | str | None = None,
    k: int = 12,
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    device: str = "auto",
    told: Told | None = None,
    cache: bool = True,
    note: Callable[[str], None] | None = None,
) -> Found:
    """The k images nearest to each photograph, by cosine: what `dualtemp search` does.

    A photograph is not found as its own neighbour; a copy of it under another name is. Of equally similar images the
    one that comes first is the nearer.

    Args:
        run: the folder of a run.
        photos: image files.
        data: where to look: a set, a folder of images or an .npz file; default: the run's own.
        embeddings: look in this file of `dualtemp embed` instead; `data` then only says where its images are.
        k: how many, default 12.
        batch: images at once, default 256.
        workers: processes that read photographs, default one for each core but one.
        device: default "auto", the best there is.
        told: is told how many images are done, and of how many.
        cache: keep computed features for the next time, and take those that were kept (feature_cache.py).
        note: is told what a person should know; default: nobody.
    """
    if k < 1:
        raise UserError(f"k must be at least 1, got {k}")
    encoder, paths = run_encoder(Path(run), device), [Path(photo) for photo in photos]
    problems: dict[str, str] = {}
    bank = bank_of(encoder, data, embeddings, batch, workers, problems, told, cache=cache, note=note)
    images = bank.images()
    near, among = nearest_rows(photo_features(encoder, paths, images), bank.rows, k + 1)
    pictures = PicturesByName(images)
    others = [_without(path, found, pictures)[:k] for path, found in zip(paths, near, strict=True)]
    return Found(paths, others, among, pictures, problems)


def photo_features(encoder: RunEncoder, paths: Sequence[Path], among: ImageList | None = None) -> Tensor:
    """Features (N, F) of image files, read as the images that they are looked for among: from files, or as pixels."""
    problems: dict[str, str] = {}
    features = [found for part in _shown(encoder, paths, among) for _, found in encoder.features(part, 64, 0, problems)]
    for name, reason in problems.items():
        raise UserError(f"{name}: {reason}; give an image file")
    return torch.cat(features)


def _shown(encoder: RunEncoder, paths: Sequence[Path], among: ImageList | None) -> Iterator[ImageSet]:
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: no such file; give an image file")
    files = FileImages(Path(), tuple(map(str, paths)), encoder.channels)
    if among is None or not among.images.in_memory:
        yield ImageSet("photographs", files, channels=encoder.channels)
        return
    for number in range(len(files)):
        try:
            pixels = to_tensor(files.open(number)).unsqueeze(0)
        except UnreadableImage as error:
            raise UserError(f"{error}; give an image file") from None
        yield ImageSet("photograph", pixels, channels=encoder.channels)


@torch.no_grad()
def nearest_rows(queries: Tensor, rows: Iterable[Rows], k: int) -> tuple[list[list[Near]], int]:
    """The k nearest rows to each of the queries (Q, F), nearest first, and how many rows there were.

    Of the rows one piece exists at a time; what is kept of them is k similarities and names a query.
    """
    (asked,) = unit(queries.double())
    best = torch.empty(len(asked), 0)
    kept: list[list[Near]] = [[] for _ in asked]
    among = 0
    for piece in rows:
        (z,) = unit(torch.tensor(piece.features, dtype=torch.float64))
        # Summed in float64 and rounded: equal images are equally near, whatever pieces they come in.
        tile = (asked @ z.T).float()  # (Q, piece)
        # Those kept stand first, and a stable sort leaves the earlier of two equals in front.
        best, order = torch.cat([best, tile], 1).sort(dim=1, descending=True, stable=True)
        best, order = best[:, :k], order[:, :k]
        for query, places in enumerate(order.tolist()):
            before = kept[query]
            kept[query] = [
                before[place] if place < len(before) else _near(piece, place - len(before), tile[query])
                for place in places
            ]
        among += len(z)
    if not among:
        raise UserError("there is no image to look among: give --data a folder with images that can be read")
    return kept, among


def _near(piece: Rows, place: int, similarities: Tensor) -> Near:
    return Near(piece.names[place], piece.labels[place], min(1.0, float(similarities[place])))


def _without(photo: Path, found: list[Near], pictures: PicturesByName) -> list[Near]:
    """What was found, but for the photograph itself.

    Where nothing tells where the images are, it is the one of the same file name and the same features, of several the
    one whose folders agree best.
    """
    own = os.path.realpath(photo)
    if pictures.images is None:
        same = [near for near in found if near.s > EQUAL and Path(near.name).name == photo.name]
        itself = max(same, key=lambda near: _common_end(near.name, own), default=None)
        return [near for near in found if near is not itself]
    return [near for near in found if (path := pictures.path(near.name)) is None or os.path.realpath(path) != own]


def _common_end(name: str, path: str) -> int:
    """How many folders, counted from the file upwards, two paths have in common."""
    ends = zip(reversed(Path(name).parts), reversed(Path(path).parts), strict=False)
    return next((count for count, (one, other) in enumerate(ends) if one != other), len(Path(name).parts))
