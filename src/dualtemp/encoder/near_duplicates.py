"""Pairs of almost equal images: all pairs whose features have a cosine above a threshold, found tile by tile."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.encoder.bank import bank_of
from dualtemp.encoder.complete_linkage import complete_groups
from dualtemp.encoder.embedding_reader import Rows
from dualtemp.encoder.encoder import run_encoder
from dualtemp.encoder.feature_records import Told
from dualtemp.encoder.pictures_by_name import PicturesByName
from dualtemp.errors import UserError
from dualtemp.losses.similarity import true_precision, unit

# Measured in docs/embed.md: above it lie re-encoded and resized copies, below it nearly all other pairs.
THRESHOLD = 0.99
TILE = {"cpu": 1024, "cuda": 8192}  # rows and columns of a tile
MANY = 20_000  # images from which on comparing them takes longer than one likes to wait in silence
ROUNDING = 1e-6  # of a cosine in float32: copies have 1 within this
EQUAL = 0.9999  # from here on contents are compared; equal contents have equal features


class Pair(NamedTuple):
    """Images by number, the cosine s of their features, and whether their contents are the same (None: not known)."""

    first: int
    second: int
    s: float
    same: bool | None


class NearDuplicates(NamedTuple):
    """What was found among images with these names, labels and parts ("train", "test"; None where not known).

    pairs: the most similar first; groups: images of which every two are a pair, that of the most similar pair first
    (complete_linkage.py); cut: whether there were more pairs than are kept, of which these are the most similar;
    unreadable: files that were passed over.
    """

    names: list[str]
    labels: list[str | None]
    parts: list[str | None]
    pairs: list[Pair]
    groups: list[list[int]]
    cut: bool
    pictures: PicturesByName
    unreadable: dict[str, str]

    def remarks(self, pair: Pair) -> list[str]:
        """What a person should know of a pair: "same content", "two labels", "train and test"."""
        labels, parts = ({word for i in pair[:2] if (word := known[i])} for known in (self.labels, self.parts))
        found = ["same content"] if pair.same else []
        found += ["two labels"] if len(labels) == 2 else []
        return found + [f"{part} and test" for part in parts - {"test"} if "test" in parts]


def near_duplicates(
    run: Path | str,
    *,
    data: Path | str | None = None,
    embeddings: Path | str | None = None,
    threshold: float = THRESHOLD,
    mirrored: bool = False,
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    device: str = "auto",
    told: Told | None = None,
    cache: bool = True,
    note: Callable[[str], None] | None = None,
) -> NearDuplicates:
    """Pairs of images whose features have a cosine of at least `threshold`: what `dualtemp near-duplicates` does.

    Memory grows with the number of images, not with its square.

    Args:
        run: the folder of a run.
        data: a set, a folder of images or an .npz file; default: the run's own.
        embeddings: take the features from this file of `dualtemp embed` instead; `data` then only says where its images
            are.
        threshold: least cosine of a pair, default 0.99.
        mirrored: take an image and its mirror image for one; twice the time, and not with `embeddings`.
        batch: images at once, default 256.
        workers: processes that read photographs, default one for each core but one.
        device: default "auto", the best there is.
        told: is told how many images are done, and of how many.
        cache: keep computed features for the next time, and take those that were kept (feature_cache.py).
        note: is told what a person should know; default: nobody.
    """
    if not -1 <= threshold <= 1:
        raise UserError(f"threshold is the cosine of two images' features: give a number up to 1, got {threshold}")
    if mirrored and embeddings is not None:
        raise UserError("--mirrored needs the images themselves: give --data instead of --embeddings")
    encoder, problems = run_encoder(Path(run), device), {}
    bank = bank_of(encoder, data, embeddings, batch, workers, problems, told, mirrored, cache, note)
    names, labels, parts, features = _gathered(bank.rows)
    if note is not None and len(names) > MANY:
        note(f"comparing all pairs of {len(names):,} images")
    index, s, cut = similar_pairs(features.to(encoder.device), threshold, told=told if len(names) > MANY else None)
    pictures = PicturesByName(bank.images())
    pairs = [
        Pair(first, second, each, _same(pictures, names[first], names[second]) if each >= EQUAL else False)
        for (first, second), each in zip(index.tolist(), s.tolist(), strict=True)
    ]
    return NearDuplicates(names, labels, parts, pairs, complete_groups(index), cut, pictures, problems)


@torch.no_grad()
def similar_pairs(
    features: Tensor, threshold: float, most: int | None = None, told: Told | None = None
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Pairs (P, 2), each i < j, of rows of features (N, F) with a cosine of at least `threshold`; their cosines (P,).

    The most similar come first, of equals the earlier images. At most `most` are kept (default: the larger of 100,000
    and 10 N); the last result tells whether there were more. told hears of how many images all pairs are known.
    """
    (z,) = unit(features)
    side, most = TILE.get(z.device.type, TILE["cuda"]), max(100_000, 10 * len(z)) if most is None else most
    index, s, held, least, cut = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.float32)], 0, threshold - ROUNDING, False
    with true_precision(z.device):
        for top in range(0, len(z), side):
            for left in range(top, len(z), side):
                tile = z[top : top + side] @ z[left : left + side].T
                above = tile >= least
                if top == left:
                    above = above.triu(1)
                where = above.nonzero()
                if not len(where):
                    continue
                s.append(tile[where[:, 0], where[:, 1]].clamp_max(1.0).cpu().numpy())
                index.append(where.cpu().numpy() + np.array([top, left]))
                held += len(where)
                if held > 2 * most:
                    index, s, cut = *_highest(index, s, most), True
                    held, least = most, float(s[0][-1])
            if told is not None:
                told(min(top + side, len(z)), len(z))
    index, s = _highest(index, s, most)
    return index[0], s[0], cut or held > most


def _highest(index: list[np.ndarray], s: list[np.ndarray], most: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The most similar pairs, sorted; each list has one entry then."""
    pairs, values = np.concatenate(index), np.concatenate(s)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -values))[:most]
    return [pairs[order]], [values[order]]


def _gathered(rows: Iterable[Rows]) -> tuple[list[str], list[str | None], list[str | None], Tensor]:
    names: list[str] = []
    labels: list[str | None] = []
    parts: list[str | None] = []
    features = []
    for piece in rows:
        names += piece.names
        labels += piece.labels
        parts += piece.parts
        features.append(torch.tensor(piece.features))
    if not features:
        raise UserError("there is no image to compare: give --data a folder with images that can be read")
    return names, labels, parts, torch.cat(features)


def _same(pictures: PicturesByName, first: str, second: str) -> bool | None:
    one, other = pictures.digest(first), pictures.digest(second)
    return None if one is None or other is None else one == other
