"""Find almost equal images: all pairs whose features have a cosine above a threshold, tile by tile."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.encoder.bank import bank_of, check_encoder, gather_rows, locate
from dualtemp.encoder.captions import captions
from dualtemp.encoder.complete_linkage import complete_groups
from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.encoder import run_encoder
from dualtemp.encoder.feature_records import EncodingOptions, Progress
from dualtemp.encoder.index_pairs import index_pairs
from dualtemp.encoder.pictures_by_name import PicturesByName
from dualtemp.encoder.vector_index import VectorIndex, open_index
from dualtemp.errors import UserError
from dualtemp.losses.similarity import true_precision, unit
from dualtemp.renamed import renamed_arguments

# Measured in docs/embed.md: re-encoded and resized copies lie above it, nearly all other pairs below.
THRESHOLD = 0.99
TILE = {"cpu": 1024, "cuda": 8192}  # rows and columns of a tile
MANY = 20_000  # images; comparing more takes long enough to announce it
ROUNDING = 1e-6  # of a cosine in float32: copies have 1 within this
EQUAL = 0.9999  # from this cosine on, contents are compared too: equal contents have equal features


class Pair(NamedTuple):
    """Two images by number, the cosine s of their features, and whether their content is the same (None: unknown)."""

    first: int
    second: int
    s: float
    same: bool | None


class NearDuplicates(NamedTuple):
    """Pairs and groups among images with these names, labels and parts ("train", "test"; None where unknown).

    pairs: the most similar first; groups: images of which every two are a pair (complete_linkage.py), in the order of
    their most similar pairs; cut: whether there were more pairs than these, which are the most similar; pictures: the
    images by name; unreadable: files that were skipped, name -> reason; among: number of images that were compared
    (with an index, names are those of images in pairs alone); recall: the share of pairs that the index finds.
    """

    names: list[str]
    labels: list[str | None]
    parts: list[str | None]
    pairs: list[Pair]
    groups: list[list[int]]
    cut: bool
    pictures: PicturesByName
    unreadable: dict[str, str]
    among: int
    recall: float | None = None

    def remarks(self, pair: Pair) -> list[str]:
        """Remarks on a pair for the user: "same content", "two labels", "train and test"."""
        labels, parts = ({word for i in pair[:2] if (word := known[i])} for known in (self.labels, self.parts))
        found = ["same content"] if pair.same else []
        found += ["two labels"] if len(labels) == 2 else []
        return found + [f"{part} and test" for part in parts - {"test"} if "test" in parts]


@renamed_arguments(told="progress")
def near_duplicates(
    run: Path | str,
    *,
    data: Path | str | None = None,
    embeddings: Path | str | None = None,
    index: Path | str | None = None,
    threshold: float = THRESHOLD,
    mirrored: bool = False,
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    cache: bool = True,
    note: Callable[[str], None] | None = None,
) -> NearDuplicates:
    """Find the pairs of images whose features have a cosine of at least `threshold`: `dualtemp near-duplicates`.

    Memory grows with the number of images, not with its square.

    Args:
        run: the run's folder.
        data: a set, a folder of images or an .npz file; default: the run's own images.
        embeddings: take features from this file of `dualtemp embed`; `data` then only says where its images are.
        index: an index of these embeddings by `dualtemp index`: finds most pairs, and measures how many, in less than
            quadratic work. Cosines are exact.
        threshold: least cosine of a pair, default 0.99.
        mirrored: find mirrored copies too; takes twice the time, not with `embeddings`.
        batch: images at once, default 256.
        workers: processes that read image files, default one for each core but one.
        device: default "auto", the best one.
        progress: called with the number of images done, and of all.
        cache: keep computed features for the next time, and reuse kept ones (feature_cache.py).
        note: called with messages for the user.
    """
    if not -1 <= threshold <= 1:
        raise UserError(f"threshold is the cosine of two images' features: give a number up to 1, got {threshold}")
    if mirrored and (embeddings is not None or index is not None):
        raise UserError("--mirrored needs the images themselves: give --data instead of --embeddings")
    encoder, problems = run_encoder(Path(run), device), {}
    options = EncodingOptions(batch, workers, mirrored, cache, progress, note)
    if index is not None:
        opened = open_index(Path(index), None if embeddings is None else Path(embeddings))
        check_encoder(opened[2], encoder)
        return _by_index(opened[0], opened[2], data, threshold, options)
    bank = bank_of(encoder, data, embeddings, options, problems)
    names, labels, parts, features = gather_rows(bank.rows)
    many = len(names) > MANY
    if many:
        options.tell(f"comparing all pairs of {len(names):,} images")
    rows, s, cut = similar_pairs(features.to(encoder.device), threshold, progress=progress if many else None)
    pictures = PicturesByName(bank.images())
    pairs = _compared(rows, s, names, pictures)
    return NearDuplicates(names, labels, parts, pairs, complete_groups(rows), cut, pictures, problems, len(names))


def _by_index(
    index: VectorIndex, file: EmbeddingFile, data: Path | str | None, threshold: float, options: EncodingOptions
) -> NearDuplicates:
    found = index_pairs(index, threshold, progress=options.progress if len(index) > MANY else None)
    if found.recall is not None:
        options.tell(
            f"found {100 * found.recall:.1f} % of the {found.sampled:,} pairs of sampled images; leave --index out to "
            "compare all"
        )
    images, rows = np.unique(found.pairs, return_inverse=True)
    rows = rows.reshape(-1, 2)
    known = captions(file, images.tolist())
    shown = [known[i] for i in images.tolist()]
    names, labels, parts = [each.name for each in shown], [each.label for each in shown], [each.part for each in shown]
    pictures = PicturesByName(locate(file, data)())
    pairs = _compared(rows, found.s, names, pictures)
    groups = complete_groups(rows)
    return NearDuplicates(names, labels, parts, pairs, groups, found.cut, pictures, {}, len(index), found.recall)


def _compared(rows: np.ndarray, s: np.ndarray, names: list[str], pictures: PicturesByName) -> list[Pair]:
    return [
        Pair(first, second, each, _same(pictures, names[first], names[second]) if each >= EQUAL else False)
        for (first, second), each in zip(rows.tolist(), s.tolist(), strict=True)
    ]


@torch.no_grad()
def similar_pairs(
    features: Tensor, threshold: float, most: int | None = None, progress: Progress | None = None
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Pairs (P, 2), each i < j, of rows of features (N, F) with a cosine of at least `threshold`; their cosines (P,).

    The most similar come first, of equally similar ones the earlier images. At most `most` are kept (default: the
    larger of 100,000 and 10 N); the last result says whether there were more. progress: called with the number of
    images whose pairs are all known, and of all.
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
            if progress is not None:
                progress(min(top + side, len(z)), len(z))
    index, s = _highest(index, s, most)
    return index[0], s[0], cut or held > most


def _highest(index: list[np.ndarray], s: list[np.ndarray], most: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Sort the pairs and keep the most similar; each list then has one entry."""
    pairs, values = np.concatenate(index), np.concatenate(s)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], -values))[:most]
    return [pairs[order]], [values[order]]


def _same(pictures: PicturesByName, first: str, second: str) -> bool | None:
    one, other = pictures.digest(first), pictures.digest(second)
    return None if one is None or other is None else one == other
