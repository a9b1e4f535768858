"""Write the features of all images of a source to a file: streamed, and resumed after an interruption."""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dualtemp.atomic_write import whole_file
from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.encoder.embedding_file import Columns, checked_format, write_features
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.encoder.feature_records import EncodingOptions, Progress, feature_records, features_facts, images_of
from dualtemp.encoder.image_list import PARTS, ImageList
from dualtemp.errors import UserError, writing
from dualtemp.file_lock import locked
from dualtemp.renamed import renamed_arguments
from dualtemp.runs.work_file import WorkFile


class Embedded(NamedTuple):
    """What was written. unreadable: files left out, name -> reason; resumed: images done before an interruption."""

    path: Path
    images: int
    features: int
    unreadable: dict[str, str]
    resumed: int


@renamed_arguments(told="progress")
def embed(
    run: Path | str,
    *,
    out: Path | str,
    data: Path | str | None = None,
    part: str = "all",
    batch: int = EVALUATION_BATCH,
    workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> Embedded:
    """Write the features of images to a file, one row per image, in the order of names: what `dualtemp embed` does.

    Memory does not grow with the number of images. If it is killed, the same call continues where it stopped, and the
    finished file has the same bits.

    Args:
        run: the run's folder.
        out: FILE.parquet, .npz or .csv; an existing file is replaced once the new one is complete.
        data: a set, a folder of images or an .npz file; default: the run's own images.
        part: "train", "test" or "all" (default).
        batch: images at once, default 256.
        workers: processes that read image files, default one for each core but one.
        device: default "auto", the best one.
        progress: called with the number of images done, and of all.
        note: called with lines that a person should read.

    Example:
        >>> dualtemp.embed("runs/mine", data="photos", out="photos.parquet")  # doctest: +SKIP
    """
    out = Path(out)
    checked_format(out)
    if batch < 1:
        raise UserError(f"batch must be at least 1, got {batch}")
    if out.is_dir():
        raise UserError(f"{out} is a folder: give --out a file's name, such as {out / 'embeddings.parquet'}")
    encoder, options = run_encoder(Path(run), device), EncodingOptions(batch, workers, progress=progress, note=note)
    images = images_of(encoder, data, part)
    computed = {**features_facts(encoder, images), "part": part, "batch": batch}
    missing = [folder for folder in out.parents if not folder.exists()]
    with writing(out, "give another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        lock, work = (out.with_name(f".{out.name}.{word}") for word in ("lock", "work"))
        try:
            with locked(lock, what=out, remove=True):
                with closing(WorkFile(work, computed)) as records:
                    try:
                        made = _embed(encoder, images, out, records, options)
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


def _embed(encoder: RunEncoder, images: ImageList, out: Path, work: WorkFile, options: EncodingOptions) -> Embedded:
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
    if not len(kept):
        name, reason = next(iter(problems.items()))
        raise UserError(f"none of {len(images)} images of {images.source} can be read, the first {name}: {reason}")
    about = {name: work.about[name] for name in ("dualtemp", "backbone", "source", "part")}
    with whole_file(out) as file:
        blocks = (record.features for record in work.records())
        write_features(file, checked_format(out), _columns(images, kept), blocks, encoder.width, about)
    return Embedded(out, len(kept), encoder.width, images.foreign | problems, resumed)


def _columns(images: ImageList, kept: np.ndarray) -> Columns:
    labels = None if images.images.labels is None else images.images.labels.cpu().numpy()[kept]
    parts = None if (images.parts < 0).all() else images.parts[kept]
    rows: list[int] = kept.tolist()
    return Columns([images.names[i] for i in rows], parts, PARTS, labels, images.images.classes)
