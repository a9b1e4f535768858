"""Write the features of all images of a source to a file or a folder: streamed, and resumed after an interruption."""

import os
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from hashlib import blake2b
from json import dumps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dualtemp.atomic_write import whole_file
from dualtemp.data.images import ImagesGone
from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.encoder.embedding_file import FORMATS, Columns, TooLarge, checked_format, write_features
from dualtemp.encoder.embedding_parts import (
    COMPUTED,
    LABELS,
    SHARE,
    UNREADABLE,
    Share,
    check_parts,
    parts_begun,
    read_share,
)
from dualtemp.encoder.embedding_reader import file_rows, read_about
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.encoder.feature_records import EncodingOptions, Progress, feature_records, features_facts, images_of
from dualtemp.encoder.image_list import PARTS, ImageList
from dualtemp.encoder.overwriting import refuse_overwriting
from dualtemp.errors import UserError, writing
from dualtemp.file_lock import locked
from dualtemp.file_names import valid_text
from dualtemp.renamed import renamed_arguments
from dualtemp.runs.work_file import WorkFile


class Embedded(NamedTuple):
    """What was written. unreadable: files left out, name -> reason; resumed: images done by an interrupted call."""

    path: Path
    images: int
    features: int
    unreadable: dict[str, str]
    resumed: int


class _Output(NamedTuple):
    """A file to write: its rows, what they are computed from, its metadata; has_parts: whether it has that column."""

    path: Path
    images: ImageList
    computed: dict[str, Any]
    about: dict[str, Any]
    dtype: str
    has_parts: bool
    is_share: bool


class _Finished(NamedTuple):
    """A part that an earlier process finished; has_labels: whether its labels and parts are the present ones."""

    rows: int
    unreadable: dict[str, str]
    has_labels: bool


@renamed_arguments(told="progress")
def embed(
    run: Path | str,
    *,
    out: Path | str,
    data: Path | str | None = None,
    part: str = "all",
    batch: int = EVALUATION_BATCH,
    dtype: str = "float32",
    share: str | None = None,
    parts: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    quick: bool = False,
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Embedded:
    """Write the features of images to a file, one row per image, in the order of names: what `dualtemp embed` does.

    Memory does not grow with the number of images. If it is killed, the same call continues where it stopped, and the
    finished file has the same bits.

    A name without an ending is a folder that several processes fill, each computing its own parts
    (embedding_parts.py): processes of torchrun divide the parts among themselves without communicating; `share` gives
    any other process its part. Finished parts are not computed again. Rows have the same bits as from one process.

    Args:
        run: the run's folder.
        out: FILE.parquet, .npz or .csv; an existing file is replaced once the new one is complete. Or a FOLDER.
        data: a set, a folder of images or an .npz file; default: the run's own images.
        part: "train", "test" or "all" (default).
        batch: images at once, default 256.
        dtype: "float32", or "float16": half the size, three digits.
        share: "3/8": compute part 3 of the parts 0 to 7 of a folder.
        parts: number of parts of a folder; default: as the folder was begun, else one for each process of torchrun.
        workers: processes that read image files, default one for each core but one.
        device: default "auto", the best one.
        quick: decode files no larger than the encoder needs, instead of as in training; features then differ a
            little. The file records this (.csv cannot), and a search in it reads its photos in the same way.
        progress: called with the number of images done, and of all.
        note: called with messages for the user.

    Example:
        >>> dualtemp.embed("runs/mine", data="photos", out="photos.parquet")  # doctest: +SKIP
    """
    out = Path(out)
    in_parts = out.suffix.lower() not in FORMATS and (out.is_dir() or not out.suffix)
    if not in_parts and out.is_dir():
        raise UserError(f"{out} is a folder: give --out a file's name, such as {out / 'embeddings.parquet'}")
    checked_format(out / "part.parquet" if in_parts else out, dtype)
    refuse_overwriting(out, run, data)
    if batch < 1:
        raise UserError(f"batch must be at least 1, got {batch}")
    shares = _shares(out, share, parts, in_parts)
    encoder = replace(run_encoder(Path(run), device), quick=quick)
    options = EncodingOptions(batch, workers, progress=progress, note=note)
    images = images_of(encoder, data, part)
    computed: dict[str, Any] = {**features_facts(encoder, images), "part": part, "batch": batch}
    told = ("dualtemp", "backbone", "source", "part", "quick", "levels")
    about = {name: computed[name] for name in told if name in computed}
    has_parts = not bool((images.parts < 0).all())
    if shares is None:
        return _write_file(encoder, _Output(out, images, computed, about, dtype, has_parts, False), options)
    about[COMPUTED] = blake2b(dumps({**computed, "dtype": dtype}, sort_keys=True).encode(), digest_size=16).hexdigest()
    about[LABELS] = _labels_digest(images)
    made, done_before, relabeled = [], 0, 0
    for each in shares:
        some = images.between(each.images(len(images), batch))
        facts = {**computed, SHARE: list(each)}
        output = _Output(out / each.file_name, some, facts, {**about, SHARE: list(each)}, dtype, has_parts, True)
        done = _finished(output)
        if done is None or not (done.has_labels or _relabel(output, done, encoder.width)):
            made.append(_write_file(encoder, output, options))
            continue
        problems = some.foreign | done.unreadable
        made.append(Embedded(output.path, done.rows, encoder.width, problems, done.rows))
        done_before += done.rows
        relabeled += 0 if done.has_labels else done.rows
    if done_before:
        options.tell(f"{done_before:,} of {sum(one.images for one in made):,} rows were computed before")
    if relabeled:
        options.tell(f"{relabeled:,} of them were written again, with the present labels")
    problems = {name: reason for one in made for name, reason in one.unreadable.items()}
    return Embedded(out, sum(one.images for one in made), encoder.width, problems, sum(one.resumed for one in made))


def _shares(out: Path, share: str | None, parts: int | None, in_parts: bool) -> list[Share] | None:
    """The parts that this process computes; None for a single file."""
    rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if not in_parts:
        if share is not None or parts is not None or world > 1:
            several = "--share and --parts divide" if world == 1 else f"{world} processes fill"
            raise UserError(f"{out}: {several} a folder: give --out a name without an ending, such as {out.stem}")
        return None
    begun = parts_begun(out)
    if share is not None:
        if parts is not None or world > 1:
            raise UserError("--share names one part for one process: leave --parts and torchrun out")
        wanted = [read_share(share)]
    else:
        count = parts if parts is not None else max(begun, default=world)
        check_parts(count)
        wanted = [Share(i, count) for i in range(rank, count, world)]
    refuse_other_division(out, {each.parts for each in wanted} or begun)
    return wanted


def refuse_other_division(out: Path, wanted: set[int]) -> None:
    """Raise UserError if a folder is already divided into another number of parts, or holds other files."""
    begun = parts_begun(out)
    if not begun and out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir()):
        raise UserError(f"{out} has other files in it: give --out a new folder, or a file such as {out}.parquet")
    if other := begun - wanted:
        raise UserError(
            f"{out}: it is divided into {max(other)} parts already: take as many, or embed into a new folder"
        )


def _finished(output: _Output) -> _Finished | None:
    """The part as an earlier process finished it, if its metadata says that it was computed from the same input."""
    with suppress(UserError):
        about, rows = read_about(output.path)
        problems, labels = about.pop(UNREADABLE, {}), about.pop(LABELS, None)
        if {**about, LABELS: output.about[LABELS]} == output.about:
            return _Finished(rows, problems, labels == output.about[LABELS])
    return None


def _labels_digest(images: ImageList) -> str:
    """Everything that determines the columns `label` and `part`, of all images, so that all parts are of one state."""
    labels = images.images.labels
    digest = blake2b(dumps([labels is not None, images.images.classes]).encode(), digest_size=16)
    digest.update(images.parts.astype("<i8").tobytes())
    if labels is not None:
        digest.update(labels.cpu().numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def _relabel(output: _Output, done: _Finished, width: int) -> bool:
    """Write a finished part again, with its own features and the present labels; False if they cannot be read."""
    out = output.path
    with (
        writing(out, "give another --out"),
        locked(_beside(out, "lock"), what=out, remove=True),
        suppress(UserError),
    ):
        names = [name for rows in file_rows(out) for name in rows.names]
        numbers = {valid_text(name): i for i, name in enumerate(output.images.names)}
        if not numbers.keys() >= set(names):
            return False
        kept = np.array([numbers[name] for name in names], np.int64)
        _write_rows(output, kept, (rows.features for rows in file_rows(out)), width, done.unreadable)
        return True
    return False


def _write_file(encoder: RunEncoder, output: _Output, options: EncodingOptions) -> Embedded:
    out = output.path
    missing = [folder for folder in out.parents if not folder.exists()]
    with writing(out, "give another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        lock, work = _beside(out, "lock"), _beside(out, "work")
        try:
            with locked(lock, what=out, remove=True):
                with closing(WorkFile(work, output.computed)) as records:
                    try:
                        made = _embed(encoder, output, records, options)
                    except (ImagesGone, TooLarge):  # keep the work; the same command, or one without --dtype, continues
                        raise
                    except UserError:  # continuing would not help
                        work.unlink()
                        raise
                work.unlink()
                return made
        except (OSError, UserError):
            for folder in missing:
                with suppress(OSError):  # another process may have written there meanwhile
                    folder.rmdir()
            raise


def _embed(encoder: RunEncoder, output: _Output, work: WorkFile, options: EncodingOptions) -> Embedded:
    out, images = output.path, output.images
    if work.anew:
        options.tell(f"what was begun for {out} was of other images, another run or other settings: starting anew")
    index, problems, resumed = [np.zeros(0, np.int64)], {}, 0

    def on_resume(text: str) -> None:
        nonlocal resumed
        resumed = sum(map(len, index))
        options.tell(f"continuing: {text}")

    for record in feature_records(work, encoder, images, options, on_resume):
        index.append(record.index)
        problems |= record.problems
    kept = np.concatenate(index)
    if not len(kept) and not output.is_share:
        name, reason = next(iter(problems.items()))
        raise UserError(f"none of {len(images)} images of {images.source} can be read, the first {name}: {reason}")
    _write_rows(output, kept, (record.features for record in work.records()), encoder.width, problems)
    return Embedded(out, len(kept), encoder.width, images.foreign | problems, resumed)


def _write_rows(
    output: _Output, kept: np.ndarray, blocks: Iterable[np.ndarray], width: int, problems: dict[str, str]
) -> None:
    """Write the features of the images `kept`, given in blocks (n, F); problems: files left out, name -> reason."""
    about = {**output.about, UNREADABLE: problems} if output.is_share and problems else output.about
    columns = _columns(output.images, kept, output.has_parts)
    with whole_file(output.path) as file:
        write_features(file, checked_format(output.path), columns, blocks, width, about, output.dtype)


def _beside(out: Path, word: str) -> Path:
    """The path of the lock or the work file of an output."""
    return out.with_name(f".{out.name}.{word}")


def _columns(images: ImageList, kept: np.ndarray, has_parts: bool) -> Columns:
    labels = None if images.images.labels is None else images.images.labels.cpu().numpy()[kept]
    parts = images.parts[kept] if has_parts else None
    rows: list[int] = kept.tolist()
    return Columns([images.names[i] for i in rows], parts, PARTS, labels, images.images.classes)
