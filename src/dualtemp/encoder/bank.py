"""The features to search in, from a file, from the cache, or computed on the fly."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dualtemp.encoder.embedding_file import valid_label
from dualtemp.encoder.embedding_reader import EmbeddingFile, Rows
from dualtemp.encoder.encoder import RunEncoder
from dualtemp.encoder.feature_cache import cached_records
from dualtemp.encoder.feature_records import EncodingOptions, images_of
from dualtemp.encoder.image_list import ImageList, listed
from dualtemp.errors import UserError
from dualtemp.file_names import valid_text


class Bank(NamedTuple):
    """Features to search in.

    images: returns the images themselves, None if their location is unknown; quick: whether they were read by `quick`.
    """

    rows: Iterator[Rows]
    images: Callable[[], ImageList | None]
    quick: bool = False


class Gathered(NamedTuple):
    """All rows in memory: names, labels and parts (None where unknown), features float32 (N, F)."""

    names: list[str]
    labels: list[str | None]
    parts: list[str | None]
    features: Tensor


def bank_of(
    encoder: RunEncoder,
    data: Path | str | None,
    embeddings: Path | str | None,
    options: EncodingOptions,
    problems: dict[str, str],
) -> Bank:
    """Take features from a file if one is given (`data` then only says where its images are), else compute them.

    problems: collects unreadable files, name -> reason.
    """
    if embeddings is not None:
        return _of_file(encoder, data, Path(embeddings))
    images = images_of(encoder, data)
    problems |= images.foreign

    def rows() -> Iterator[Rows]:
        for record in cached_records(encoder, images, options):
            problems.update(record.problems)
            numbers: list[int] = record.index.tolist()
            if numbers:
                names = [valid_text(images.names[i]) for i in numbers]
                labels, parts = [valid_label(images.label(i)) for i in numbers], [images.part(i) for i in numbers]
                yield Rows(names, labels, parts, record.features)

    return Bank(rows(), lambda: images)


def bank_of_file(embeddings: Path, data: Path | str | None = None) -> Bank:
    """Take features from a file, whichever encoder computed them; `data` says where the images are."""
    file = EmbeddingFile(embeddings)
    return Bank(file.rows(), locate(file, data), bool(file.about.get("quick")))


def gather_rows(rows: Iterable[Rows]) -> Gathered:
    """Read all rows into memory."""
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
    return Gathered(names, labels, parts, torch.cat(features))


def _of_file(encoder: RunEncoder, data: Path | str | None, embeddings: Path) -> Bank:
    file = EmbeddingFile(embeddings)
    check_encoder(file, encoder)
    return Bank(file.rows(), locate(file, data), bool(file.about.get("quick")))


def check_encoder(file: EmbeddingFile, encoder: RunEncoder) -> None:
    """Raise UserError if the file's features are of another encoder."""
    embeddings, own = file.path, encoder.fingerprint
    if file.about.get("backbone", own) != own:
        raise UserError(f"{embeddings} has features of another encoder than {encoder.path}: embed the images anew")
    if file.width != encoder.width:
        raise UserError(
            f"{embeddings} has {file.width} features an image, the encoder of {encoder.path} makes {encoder.width}: "
            "embed the images anew"
        )


def locate(file: EmbeddingFile, data: Path | str | None) -> Callable[[], ImageList | None]:
    """Return a function that lists the images behind a feature file, in `data` or where they were; else None."""

    def located() -> ImageList | None:
        if data is not None:
            return listed(data).by_levels(file.levels)
        source = file.about.get("source")
        with suppress(UserError):  # moved or gone: names are shown without pictures
            return listed(str(source)).by_levels(file.levels) if source is not None else None
        return None

    return located
