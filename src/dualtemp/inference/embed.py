"""Features of all images of a source, written to a file: streamed, and resumed where they were stopped."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from dualtemp import __version__
from dualtemp.data.images import FileImages
from dualtemp.data.loader import EVALUATION_BATCH
from dualtemp.errors import UserError
from dualtemp.inference.embedding_file import Columns, checked_format, valid_text, write_features
from dualtemp.inference.embedding_reader import EmbeddingFile, Rows
from dualtemp.inference.encoder import RunEncoder, run_encoder
from dualtemp.inference.image_list import PARTS, ImageList, listed
from dualtemp.inference.work_file import Record, WorkFile
from dualtemp.training.folder_lock import locked
from dualtemp.training.run_folder import RunFolder
from dualtemp.whole_file import whole_file

Told = Callable[[int, int], None]  # is told how many images are done, and of how many


class Embedded(NamedTuple):
    """What was written. unreadable: files left out, name -> reason; resumed: images that were done before."""

    path: Path
    images: int
    features: int
    unreadable: dict[str, str]
    resumed: int


def embed(
    run: Path | str,
    *,
    out: Path | str,
    data: Path | str | None = None,
    part: str = "all",
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    device: str = "auto",
    told: Told | None = None,
    note: Callable[[str], None] | None = None,
) -> Embedded:
    """Write the features of images to a file, a row an image, in the order of their names: what `dualtemp embed` does.

    Memory does not grow with the number of images. Killed at any moment, the same call goes on where it stopped, and
    the finished file has the same bits.

    Args:
        run: the folder of a run.
        out: FILE.parquet, .npz or .csv; a file that is there is replaced once the new one is whole.
        data: a set, a folder of images or an .npz file; default: the run's own.
        part: "train", "test" or "all" (default).
        batch: images at once, default 256.
        workers: processes that read photographs, default one for each core but one.
        device: default "auto", the best there is.
        told: is told how many images are done, and of how many.
        note: is told what a person should know; default: nobody.

    Example:
        >>> dualtemp.embed("runs/mine", data="photos", out="photos.parquet")  # doctest: +SKIP
    """
    out = Path(out)
    ending = checked_format(out)
    if batch < 1:
        raise UserError(f"batch must be at least 1, got {batch}")
    if out.is_dir():
        raise UserError(f"{out} is a folder: give --out a file's name, such as {out / 'embeddings.parquet'}")
    encoder = run_encoder(Path(run), device)
    images = images_of(encoder, data, part)
    computed = {**_described(encoder, images, part), "batch": batch, "list": list_fingerprint(images)}
    missing = [folder for folder in out.parents if not folder.exists()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        lock, work = (out.with_name(f".{out.name}.{word}") for word in ("lock", "work"))
        try:
            with locked(lock, what=out, remove=True):
                try:
                    made = _embedded(encoder, images, out, ending, work, computed, workers, told, note or _silent)
                except UserError:  # going on would not help
                    work.unlink()
                    raise
                work.unlink()
                return made
        except UserError:
            for folder in missing:
                with suppress(OSError):  # another process may have written there meanwhile
                    folder.rmdir()
            raise
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror or error}): give another --out") from None


def images_of(encoder: RunEncoder, data: Path | str | None, part: str = "all") -> ImageList:
    """The images of a source, by default of the run's own."""
    own = data is None
    return listed(encoder.chosen.data if own else data, part, labels=encoder.chosen.labels or not own)


def backbone_fingerprint(run: Path) -> str:
    """32 hexadecimal digits of a run's weights file: features of one encoder are compared with no other's."""
    return blake2b(RunFolder(run).backbone.read_bytes(), digest_size=16).hexdigest()


def feature_rows(
    encoder: RunEncoder,
    images: ImageList,
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    problems: dict[str, str] | None = None,
    told: Told | None = None,
    mirrored: bool = False,
) -> Iterator[Rows]:
    """The features of a list of images as a file of features would give them, computed as they are asked for."""
    for index, features in encoder.features(images.images, batch, workers, problems, mirrored):
        numbers = index.tolist()
        if told is not None:
            told(numbers[-1] + 1, len(images))
        names, labels = [valid_text(images.names[i]) for i in numbers], [images.label(i) for i in numbers]
        yield Rows(names, labels, [images.part(i) for i in numbers], features.numpy())


class Bank(NamedTuple):
    """Features to look among. images: gives the images themselves; None if nothing tells where they are."""

    rows: Iterator[Rows]
    images: Callable[[], ImageList | None]


def bank_of(
    encoder: RunEncoder,
    data: Path | str | None,
    embeddings: Path | str | None,
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    problems: dict[str, str] | None = None,
    told: Told | None = None,
    mirrored: bool = False,
) -> Bank:
    """Features from a file, if one is given (data then only says where its images are), else computed."""
    if embeddings is None:
        images = images_of(encoder, data)
        if problems is not None:
            problems |= images.foreign
        return Bank(feature_rows(encoder, images, batch, workers, problems, told, mirrored), lambda: images)
    file, own = EmbeddingFile(Path(embeddings)), backbone_fingerprint(encoder.path)
    if file.about.get("backbone", own) != own:
        raise UserError(f"{embeddings} has features of another encoder than {encoder.path}: embed the images anew")
    if file.width != encoder.width:
        raise UserError(
            f"{embeddings} has {file.width} features an image, the encoder of {encoder.path} makes {encoder.width}: "
            "embed the images anew"
        )
    source = file.about.get("source") if data is None else str(data)

    def located() -> ImageList | None:
        if data is not None:
            return listed(data)
        with suppress(UserError):  # moved or gone meanwhile: names are told without pictures
            return listed(str(source)) if source is not None else None
        return None

    return Bank(file.rows(), located)


def list_fingerprint(images: ImageList) -> str:
    """Of the names and, for files, of their lengths and times: enough to tell whether a list is still the same."""
    digest = blake2b(digest_size=16)
    if not isinstance(images.images.pixels, FileImages):
        digest.update(replace(images.images, labels=None, classes=()).fingerprint.encode())
    for i, name in enumerate(images.names):
        digest.update(f"{name}\0".encode(errors="surrogateescape"))
        if (path := images.path(i)) is not None:
            try:
                found = os.stat(path)
                digest.update(f"{found.st_size} {found.st_mtime_ns}\n".encode())
            except OSError:
                digest.update(b"gone\n")
    return digest.hexdigest()


def _silent(_: str) -> None:
    pass


def _described(encoder: RunEncoder, images: ImageList, part: str) -> dict[str, Any]:
    views = encoder.views
    return {
        "dualtemp": __version__,
        "torch": torch.__version__,
        "device": encoder.device.type,
        "backbone": backbone_fingerprint(encoder.path),
        "view": [views.size, encoder.channels, list(views.mean), list(views.std)],
        "source": valid_text(images.source),
        "part": part,
    }


def _embedded(
    encoder: RunEncoder,
    images: ImageList,
    out: Path,
    ending: str,
    work_path: Path,
    computed: dict[str, Any],
    workers: int | None,
    told: Told | None,
    note: Callable[[str], None],
) -> Embedded:
    work, batch = WorkFile(work_path, computed), computed["batch"]
    try:
        if work.anew:
            note(f"what was begun for {out} was of other images, another run or other settings: beginning anew")
        index, problems = [np.zeros(0, np.int64)], {}
        for record in work.records():
            index.append(record.index)
            problems |= record.problems
        start = _end_of_batch(index, batch)
        resumed = sum(map(len, index))
        if resumed:
            note(f"going on: {min(start, len(images)):,} of {len(images):,} images are done")
        if start < len(images):
            try:
                for record in _records(encoder, images, start, batch, workers):
                    work.append(record)
                    index.append(record.index)
                    problems |= record.problems
                    start = _end_of_batch(index, batch)
                    if told is not None:
                        told(min(start, len(images)), len(images))
            except KeyboardInterrupt:
                done = f"{min(start, len(images)):,} of {len(images):,} images are done"
                raise KeyboardInterrupt(f"stopped; {done}; the same command goes on") from None
        kept = np.concatenate(index)
        if not len(kept):
            name, reason = next(iter(problems.items()))
            raise UserError(f"none of {len(images)} images of {images.source} can be read, the first {name}: {reason}")
        about = {name: computed[name] for name in ("dualtemp", "backbone", "source", "part")}
        with whole_file(out) as file:
            blocks = (record.features for record in work.records())
            write_features(file, ending, _columns(images, kept), blocks, encoder.width, about)
        return Embedded(out, len(kept), encoder.width, images.foreign | problems, resumed)
    finally:
        work.close()


def _records(encoder: RunEncoder, images: ImageList, start: int, batch: int, workers: int | None) -> Iterator[Record]:
    """From image `start` on, a record a batch; files that cannot be read are told in the next one."""
    problems: dict[str, str] = {}
    for index, features in encoder.features(images.since(start), batch, workers, problems):
        yield Record(index.numpy() + start, features.numpy(), dict(problems))
        problems.clear()
    if problems:
        yield Record(np.zeros(0, np.int64), np.zeros((0, encoder.width), np.float32), dict(problems))


def _end_of_batch(index: list[np.ndarray], batch: int) -> int:
    """Where the batch of the last image ends: going on there makes the batches that would have been made anyway."""
    last = next((int(part[-1]) for part in reversed(index) if len(part)), -1)
    return -(-(last + 1) // batch) * batch


def _columns(images: ImageList, kept: np.ndarray) -> Columns:
    labels = None if images.images.labels is None else images.images.labels.cpu().numpy()[kept]
    parts = None if (images.parts < 0).all() else images.parts[kept]
    return Columns([images.names[i] for i in kept.tolist()], parts, PARTS, labels, images.images.classes)
