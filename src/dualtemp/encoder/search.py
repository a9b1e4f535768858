"""Find the images nearest to a photo by the cosine of their features: exact, over features read in a stream."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.data.images import FileImages, ImageSet, UnreadableImage
from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.data.loading.stacks import Levels
from dualtemp.encoder.bank import bank_of, check_encoder, locate
from dualtemp.encoder.captions import captions
from dualtemp.encoder.embedding_reader import EmbeddingFile, Rows
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.encoder.feature_records import EncodingOptions, Progress
from dualtemp.encoder.image_list import ImageList
from dualtemp.encoder.pictures_by_name import PicturesByName
from dualtemp.encoder.stored_vectors import unit_rows
from dualtemp.encoder.vector_index import VectorIndex, open_index
from dualtemp.errors import UserError
from dualtemp.losses.similarity import unit
from dualtemp.renamed import renamed_arguments

NAMES = 16  # extra neighbors to ask for: a photo may be among the images under up to this many names (links)
EQUAL = 0.9999  # least cosine of a photo with itself, given the rounding in a file of features


class Near(NamedTuple):
    """An image that was found, and the cosine s of its features with the photo's."""

    name: str
    label: str | None
    s: float


class Found(NamedTuple):
    """The images nearest to each photo, nearest first; among: number of images searched.

    pictures: the images by name; unreadable: files that were skipped, name -> reason; levels: those with which the
    encoder reads the photos, if any (`ImageSource.levels`).
    """

    photos: list[Path]
    near: list[list[Near]]
    among: int
    pictures: PicturesByName
    unreadable: dict[str, str]
    levels: Levels | None = None


@renamed_arguments(told="progress")
def search(
    run: Path | str,
    photos: Path | str | Sequence[Path | str],
    *,
    data: Path | str | None = None,
    embeddings: Path | str | None = None,
    index: Path | str | None = None,
    k: int = 12,
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    cache: bool = True,
    note: Callable[[str], None] | None = None,
) -> Found:
    """Find the k images nearest to each photo, by cosine: what `dualtemp search` does.

    A photo is never its own neighbor; a copy of it under another name can be. Of equally similar images the one that
    comes first counts as nearer.

    Args:
        run: the run's folder.
        photos: image files, or one.
        data: where to search: a set, a folder of images or an .npz file; default: the run's own images.
        embeddings: search this file of `dualtemp embed` instead; `data` then only says where its images are.
        index: an index of these embeddings by `dualtemp index`: finds most of the nearest (its recall is stated)
            without comparing with every image. Cosines are exact.
        k: number of images for each photo, default 12.
        batch: images at once, default 256.
        workers: processes that read image files, default one for each core but one.
        device: default "auto", the best one.
        progress: called with the number of images done, and of all.
        cache: keep computed features for the next time, and reuse kept ones (feature_cache.py).
        note: called with messages for the user.
    """
    if k < 1:
        raise UserError(f"k must be at least 1, got {k}")
    photos = [photos] if isinstance(photos, str | Path) else photos
    if not photos:
        raise UserError("no photo to search with: give one image file or more")
    encoder, paths = run_encoder(Path(run), device), [Path(photo) for photo in photos]
    problems: dict[str, str] = {}
    options = EncodingOptions(batch, workers, cache=cache, progress=progress, note=note)
    if index is not None:
        found, _, file = open_index(Path(index), None if embeddings is None else Path(embeddings))
        check_encoder(file, encoder)
        images, quick = locate(file, data)(), bool(file.about.get("quick"))
        near, among = (
            _nearest_indexed(photo_features(replace(encoder, quick=quick), paths, images), found, file, k + NAMES),
            len(found),
        )
    else:
        bank = bank_of(encoder, data, embeddings, options, problems)
        images = bank.images()
        near, among = nearest_rows(
            photo_features(replace(encoder, quick=bank.quick), paths, images), bank.rows, k + NAMES
        )
    pictures = PicturesByName(images)
    others = [_without(path, found, pictures)[:k] for path, found in zip(paths, near, strict=True)]
    return Found(paths, others, among, pictures, problems, encoder.views.levels)


def photo_features(encoder: RunEncoder, paths: Sequence[Path], among: ImageList | None = None) -> Tensor:
    """Features (N, F) of image files, read in the same way as the images to search in: as files, or as pixels."""
    problems: dict[str, str] = {}
    features = [found for part in _shown(encoder, paths, among) for _, found in encoder.features(part, 64, 0, problems)]
    for name, reason in problems.items():
        raise UserError(f"{name}: {reason}; give an image file")
    return torch.cat(features)


def _shown(encoder: RunEncoder, paths: Sequence[Path], among: ImageList | None) -> Iterator[ImageSet]:
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path}: no such file; give an image file")
    files = FileImages(Path(), tuple(map(str, paths)), encoder.channels, levels=encoder.views.levels)
    if among is None or not among.images.in_memory:
        yield ImageSet("photos", files, channels=encoder.channels)
        return
    for number in range(len(files)):
        try:
            pixels = files.pixels(number).unsqueeze(0)
        except UnreadableImage as error:
            raise UserError(f"{error}; give an image file") from None
        yield ImageSet("photo", pixels, channels=encoder.channels)


@torch.no_grad()
def nearest_rows(queries: Tensor, rows: Iterable[Rows], k: int) -> tuple[list[list[Near]], int]:
    """Return the k rows nearest to each of the queries (Q, F), nearest first, and the number of all rows.

    One piece of the rows is in memory at a time, plus k similarities and names per query.
    """
    (asked,) = unit(queries.double())
    best = torch.empty(len(asked), 0)
    kept: list[list[Near]] = [[] for _ in asked]
    among = 0
    for piece in rows:
        (z,) = unit(torch.tensor(piece.features, dtype=torch.float64))
        # Summed in float64 and then rounded, so that equal images are equally near whichever piece they are in.
        tile = (asked @ z.T).float()  # (Q, piece)
        # Rows kept so far come first, and the sort is stable: of two equals the earlier stays in front.
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
        raise UserError("there is no image to search in: give --data a folder with images that can be read")
    return kept, among


def _nearest_indexed(queries: Tensor, index: VectorIndex, file: EmbeddingFile, k: int) -> list[list[Near]]:
    rows, s = index.search(unit_rows(queries.numpy()), k)
    known = captions(file, rows[rows >= 0].tolist())
    return [
        [Near(known[row].name, known[row].label, value) for row, value in zip(*each, strict=True) if row >= 0]
        for each in zip(rows.tolist(), s.tolist(), strict=True)
    ]


def _near(piece: Rows, place: int, similarities: Tensor) -> Near:
    return Near(piece.names[place], piece.labels[place], min(1.0, float(similarities[place])))


def _without(photo: Path, found: list[Near], pictures: PicturesByName) -> list[Near]:
    """Remove the photo itself from the images found.

    If the images' files are unknown, the photo is taken to be the image with the same file name and the same features;
    of several, the one whose folders agree best.
    """
    own = os.path.realpath(photo)
    if pictures.images is None:
        same = [near for near in found if near.s > EQUAL and Path(near.name).name == photo.name]
        itself = max(same, key=lambda near: _common_end(near.name, own), default=None)
        return [near for near in found if near is not itself]
    return [near for near in found if (path := pictures.path(near.name)) is None or os.path.realpath(path) != own]


def _common_end(name: str, path: str) -> int:
    """Number of trailing path components that two paths have in common."""
    ends = zip(reversed(Path(name).parts), reversed(Path(path).parts), strict=False)
    return next((count for count, (one, other) in enumerate(ends) if one != other), len(Path(name).parts))
