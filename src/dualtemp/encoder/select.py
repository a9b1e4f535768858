"""Choose which images of a source to label, by their features and the labels given so far."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from dualtemp.data.loading.drawn_views import draw_views
from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.data.sources.label_file import check_label_file
from dualtemp.encoder.bank import Gathered, bank_of, bank_of_file, gather_rows
from dualtemp.encoder.embedding_reader import is_embeddings
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.encoder.feature_records import EncodingOptions, Progress
from dualtemp.encoder.image_list import ImageList
from dualtemp.encoder.label_file import labels_by_name, number_labels
from dualtemp.encoder.pictures_by_name import PicturesByName
from dualtemp.encoder.selection import (
    Selection,
    anchor_weights,
    select_diverse,
    select_farthest,
    select_hardest,
    select_random,
    select_typical,
    select_uncertain,
)
from dualtemp.errors import UserError
from dualtemp.file_names import valid_text

WAYS = ("diverse", "typical", "hardest", "uncertain", "random")
NO_VIEWS = "hardest draws views of the images: give the run or start that encodes them, and --data"
TAU = 0.1  # temperature of the anchor weights
USUAL = 100  # images selected by default
DRAWS = 2  # pairs of views over which anchor weights are averaged


class Selected(NamedTuple):
    """The images to label, the most wanted first.

    names, labels, scores: one per selected image; by: the way of selection; among: number of all images; labeled: how
    many of these had a label already; pictures: the images by name; unreadable: files skipped, name -> reason.
    """

    names: list[str]
    labels: list[str | None]
    scores: list[float]
    by: str
    among: int
    labeled: int
    pictures: PicturesByName
    unreadable: dict[str, str]


class Candidates(NamedTuple):
    """Images to choose from. images: None if not found; encoder: None for a feature file; unreadable: name -> why."""

    rows: Gathered
    images: ImageList | None
    encoder: RunEncoder | None
    unreadable: dict[str, str]


def select(
    run: Path | str,
    n: int | None = None,
    *,
    by: str = "diverse",
    data: Path | str | None = None,
    embeddings: Path | str | None = None,
    labels: Path | str | None = None,
    seed: int = 0,
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    cache: bool = True,
    note: Callable[[str], None] | None = None,
) -> Selected:
    """Choose n images to label: what `dualtemp select` does.

    Args:
        run: the run's folder, a pretrained start, or a file of `dualtemp embed`, which needs no encoder.
        n: how many; default 100, or all if there are fewer.
        by: "diverse" (they represent all images), "typical" (the middle of each cluster), "hardest" (the largest
            anchor weights W of the encoder), "uncertain" (least sure to a classifier on the labels so far), "random".
        data: a set, a folder of images or an .npz file; default: the run's own images.
        embeddings: take features from this file of `dualtemp embed`; `data` then only says where its images are.
        labels: FILE.csv (columns name and label) with the labels given so far. Default: the images' own classes, if
            some images have none; if all have one, they are ignored.
        seed: of random draws.
        batch: images at once, default 256.
        workers: processes that read image files, default one for each core but one.
        device: default "auto", the best one.
        progress: called with the number of images done, and of all.
        cache: keep computed features for the next time, and reuse kept ones (feature_cache.py).
        note: called with messages for the user.
    """
    if by not in WAYS:
        raise UserError(f"no way to select is called {by!r}: choose among {', '.join(WAYS)}")
    if n is not None and n < 1:
        raise UserError(f"n must be at least 1, got {n}")
    if labels is not None:
        check_label_file(Path(labels))  # before features are computed, which may take hours
    if by == "hardest" and is_embeddings(Path(run)):
        raise UserError(NO_VIEWS)
    options = EncodingOptions(batch, workers, cache=cache, progress=progress, note=note)
    found = open_candidates(run, data, embeddings, options, device)
    rows = found.rows
    if labels is None and by == "uncertain" and None not in rows.labels:
        raise UserError("uncertain: every image has a label, so none is to be selected: give --labels FILE.csv")
    known = rows.labels if None in rows.labels else [None] * len(rows.labels)
    if labels is not None:
        named = labels_of_candidates(found, Path(labels), options.tell)
        known = [label if label is not None else own for label, own in zip(named, known, strict=True)]
    numbers, _ = number_labels(known)
    free = int((numbers < 0).sum())
    if n is None:
        n = min(USUAL, free)
    if n > free:
        without = " without a label" if free < len(numbers) else ""
        raise UserError(f"-n {n:,}: there are {free:,} images{without} to select from: give at most {free:,}")
    weights = encoder_weights(found, options, seed) if by == "hardest" else None
    chosen = choose(by, rows.features, numbers, n, seed=seed, weights=weights)
    return Selected(
        [rows.names[i] for i in chosen.index.tolist()],
        [rows.labels[i] for i in chosen.index.tolist()],
        chosen.score.tolist(),
        by,
        len(rows.names),
        len(numbers) - free,
        PicturesByName(found.images),
        found.unreadable,
    )


def choose(
    by: str, features: torch.Tensor, labels: np.ndarray, n: int, *, seed: int = 0, weights: np.ndarray | None = None
) -> Selection:
    """Select n images by one of WAYS or "farthest"; labels: int64 (N,), -1 for none; weights: W (N,) for "hardest"."""
    known = np.flatnonzero(labels >= 0)
    if by == "uncertain":
        return select_uncertain(features, labels, n)
    if by == "hardest":
        assert weights is not None
        return select_hardest(weights, n, chosen=known)
    if by == "random":
        return select_random(len(labels), n, chosen=known, seed=seed)
    way = {"diverse": select_diverse, "typical": select_typical, "farthest": select_farthest}[by]
    return way(features, n, chosen=known, seed=seed)


def open_candidates(
    run: Path | str,
    data: Path | str | None,
    embeddings: Path | str | None,
    options: EncodingOptions,
    device: str = "auto",
) -> Candidates:
    """Read or compute the features of all images; `run` may be a file of features itself."""
    path, problems = Path(run), {}
    if is_embeddings(path):
        if embeddings is not None:
            raise UserError(f"{path} is a file of features already: leave --embeddings out")
        bank, encoder = bank_of_file(path, data), None
    else:
        encoder = run_encoder(path, device)
        bank = bank_of(encoder, data, embeddings, options, problems)
    return Candidates(gather_rows(bank.rows), bank.images(), encoder, problems)


def labels_of_candidates(found: Candidates, path: Path, tell: Callable[[str], None]) -> list[str | None]:
    """Read the labels of candidates from a file; those of other images of the source are dropped, and `tell` says so.

    These images have no features because they cannot be read, or because they are not in the file of features.
    """
    images = found.images
    others = () if images is None else (valid_text(name) for name in (*images.names, *images.foreign))
    return labels_by_name(path, found.rows.names, set(others), tell)


def encoder_weights(found: Candidates, options: EncodingOptions, seed: int = 0) -> np.ndarray:
    """Mean anchor weight W over two pairs of views, at temperature .1, of each candidate (N,); NaN if unreadable."""
    encoder, images = found.encoder, found.images
    if encoder is None or images is None:
        raise UserError(NO_VIEWS)
    views = encoder.views.with_recipe(encoder.views.recipe, seed)
    shown = encoder.fitted(images.images)
    place = {valid_text(name): i for i, name in enumerate(images.names)}
    numbers = torch.tensor([place.get(name, -1) for name in found.rows.names])
    if bool((numbers < 0).any()):
        raise UserError(f"hardest: {images.source} has not all images of the file of features: embed them anew")
    draws = [(epoch, view) for epoch in range(DRAWS) for view in (0, 1)]
    row_of = {number: row for row, number in enumerate(numbers.tolist())}
    features = torch.zeros(len(draws), len(numbers), encoder.width)
    read = torch.zeros(len(numbers), dtype=torch.bool)
    done = 0
    batches = numbers.split(options.batch)
    for drawn in draw_views(shown, views, batches, draws, encoder.device, options.workers):
        rows = torch.tensor([row_of[number] for number in drawn.index.tolist()], dtype=torch.int64)
        for kept, view in zip(features, drawn.views, strict=True):
            kept[rows] = encoder.of_views(view)
        read[rows] = True
        done += len(rows)
        if options.progress is not None:
            options.progress(done, len(numbers))
    weights = np.full(len(numbers), np.nan, np.float32)
    where = np.flatnonzero(read.numpy())
    if len(where) < 2:
        raise UserError("hardest compares images with each other: give at least two that can be read")
    pairs = [(features[i][read], features[i + 1][read]) for i in range(0, len(draws), 2)]
    weights[where] = np.mean([anchor_weights(*pair, tau=TAU, seed=seed) for pair in pairs], axis=0)
    return weights
