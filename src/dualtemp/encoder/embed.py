"""Features of all images of a source, written to a file: streamed, and resumed where they were stopped."""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dualtemp.atomic_write import whole_file
from dualtemp.data.loading.loader import EVALUATION_BATCH
from dualtemp.encoder.embedding_file import Columns, checked_format, write_features
from dualtemp.encoder.encoder import RunEncoder, run_encoder
from dualtemp.encoder.feature_records import Told, feature_records, features_facts, images_of
from dualtemp.encoder.image_list import PARTS, ImageList
from dualtemp.encoder.work_file import WorkFile
from dualtemp.errors import UserError, writing
from dualtemp.file_lock import locked


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
    checked_format(out)
    if batch < 1:
        raise UserError(f"batch must be at least 1, got {batch}")
    if out.is_dir():
        raise UserError(f"{out} is a folder: give --out a file's name, such as {out / 'embeddings.parquet'}")
    encoder = run_encoder(Path(run), device)
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
                        made = _embedded(encoder, images, out, records, workers, told, note or _silent)
                    except UserError:  # going on would not help
                        work.unlink()
                        raise
                work.unlink()
                return made
        except (OSError, UserError):
            for folder in missing:
                with suppress(OSError):  # another process may have written there meanwhile
                    folder.rmdir()
            raise


def _silent(_: str) -> None:
    pass


def _embedded(
    encoder: RunEncoder,
    images: ImageList,
    out: Path,
    work: WorkFile,
    workers: int | None,
    told: Told | None,
    note: Callable[[str], None],
) -> Embedded:
    if work.anew:
        note(f"what was begun for {out} was of other images, another run or other settings: beginning anew")
    index, problems, resumed = [np.zeros(0, np.int64)], {}, 0

    def go_on(text: str) -> None:
        nonlocal resumed
        resumed = sum(map(len, index))
        note(f"going on: {text}")

    for record in feature_records(work, encoder, images, work.about["batch"], workers, told, go_on):
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
    return Columns([images.names[i] for i in kept.tolist()], parts, PARTS, labels, images.images.classes)
