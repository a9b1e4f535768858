"""Open what the user names (images, a run or a feature file) as images with features."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dualtemp.data.sources.catalogue import looks_like_path, named_set
from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.errors import UserError
from dualtemp.studio.background import Progress
from dualtemp.studio.collection import Collection, collection_of, collection_of_rows
from dualtemp.studio.space import Space, make_space

if TYPE_CHECKING:
    from dualtemp.encoder.encoder import RunEncoder
    from dualtemp.encoder.image_list import ImageList

START = "imagenet"  # encodes images for which no encoder is given


class Opening(NamedTuple):
    """What will be opened. title: for display; source: where the images are; load: computes or reads the features."""

    title: str
    source: str
    load: Callable[[Progress, Callable[[str], None]], tuple[Collection, Space]]


def open_for_studio(what: str, data: str | None = None, encoder: str | None = None, device: str = "auto") -> Opening:
    """Find out what `what` names; raises UserError at once if it cannot be opened.

    Args:
        what: a run's folder; a feature file of `dualtemp embed`; else images: a folder, a set, an .npz file.
        data: images other than the run's own; for a feature file, where its images are.
        encoder: the run or start that encodes the images; default: the run, or for images the frozen `imagenet`.
        device: where features are computed.
    """
    path = Path(what).expanduser()
    is_set = named_set(what) is not None and not looks_like_path(what)
    if not is_set and path.is_file() and is_feature_file(path):
        return _of_file(path, data, encoder)
    if not is_set and (path / "config.yaml").is_file():
        if encoder is not None:
            raise UserError(f"{what} is a run, with an encoder of its own: leave --encoder out, or name its images")
        return _of_images(data, path, device)
    if data is not None:
        raise UserError(f"{what} names the images already: leave --data out, or give a run or a file of features")
    return _of_images(what, Path(encoder or START), device)


def is_feature_file(path: Path) -> bool:
    """Whether a file holds features rather than images; both may be .npz."""
    if path.suffix.lower() in (".parquet", ".csv"):
        return True
    if path.suffix.lower() != ".npz":
        return False
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return "features.npy" in archive.namelist()
    return False


def encoder_title(encoder: "RunEncoder") -> str:
    """The display name of an encoder."""
    if encoder.is_start:
        return f"{encoder.path} ({encoder.settings.backbone}, frozen)"
    return f"{encoder.path.resolve().name} ({encoder.settings.method})"


def embedded(
    encoder: "RunEncoder", images: "ImageList", progress: Progress, note: Callable[[str], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Index (M,) and features (M, F) of the readable images, computed or from the cache."""
    from dualtemp.encoder.feature_cache import cached_records
    from dualtemp.encoder.feature_records import EncodingOptions

    index, features = [np.zeros(0, np.int64)], [np.zeros((0, encoder.width), np.float32)]
    problems = dict(images.foreign)
    progress(0, len(images))  # the first ones may take a while
    for record in cached_records(encoder, images, EncodingOptions(progress=progress)):
        problems |= record.problems
        index.append(record.index)
        features.append(record.features)
    if problems:
        name, reason = next(iter(problems.items()))
        note(f"{len(problems):,} files cannot be read and are left out, the first {name}: {reason}")
    found = np.concatenate(index)
    if not len(found):
        raise UserError(f"none of {len(images)} images of {images.source} can be read")
    if not all(np.isfinite(part).all() for part in features):
        raise UserError(f"{encoder.path}: its encoder returns values that are not finite; use another")
    return found, np.concatenate(features)


def _of_images(data: str | None, word: Path, device: str) -> Opening:
    from dualtemp.encoder.encoder import run_encoder
    from dualtemp.encoder.feature_records import images_of

    encoder = run_encoder(word, device)
    images = images_of(encoder, data)
    title = Path(images.source).name or images.source

    def load(progress: Progress, note: Callable[[str], None]) -> tuple[Collection, Space]:
        index, features = embedded(encoder, images, progress, note)
        space = make_space(encoder_title(encoder), word, features, encoder.fingerprint)
        return collection_of(images, index, title), space

    return Opening(title, images.source, load)


def _of_file(path: Path, data: str | None, encoder: str | None) -> Opening:
    file = EmbeddingFile(path)
    source = data or str(file.about.get("source") or path.resolve())

    def images() -> "ImageList | None":
        if data is not None:
            return _located(data).by_levels(file.levels)
        with suppress(UserError):  # moved or gone: points are shown without pictures
            return _located(source).by_levels(file.levels) if file.about.get("source") else None
        return None

    def load(progress: Progress, note: Callable[[str], None]) -> tuple[Collection, Space]:
        names: list[str] = []
        labels: list[str | None] = []
        parts: list[str | None] = []
        features: list[np.ndarray] = []
        for rows in _told(file, progress):
            names += rows.names
            labels += rows.labels
            parts += rows.parts
            features.append(rows.features)
        located = images()
        if located is None:
            note(f"the images of {path.name} are not where they were ({source}): points without pictures; give --data")
        collection = collection_of_rows(names, labels, parts, located, source, path.stem)
        if located is not None and (collection.numbers < 0).all():
            raise UserError(f"{source} has none of the images of {path}: give --data the images that were embedded")
        title = encoder or str(file.about.get("run") or path.name)
        return collection, make_space(title, None if encoder is None else Path(encoder), np.concatenate(features))

    return Opening(path.stem, source, load)


def _located(data: str) -> "ImageList":
    """The images of a source. A folder is only listed, not split: the feature file holds the parts.

    Splitting a folder reads every file, to find copies; that would take most of the time until the first picture.
    """
    from dualtemp.data.images import FileImages, ImageSet
    from dualtemp.data.sources.folder import find_images
    from dualtemp.data.sources.npz import is_npz_folder
    from dualtemp.data.sources.opening import named_path
    from dualtemp.encoder.image_list import ImageList, listed

    path = named_path(data)
    if path is None or not path.is_dir() or is_npz_folder(path):
        return listed(data)
    root = path.resolve()
    names = tuple(find_images(root))
    return ImageList(str(root), ImageSet(root.name, FileImages(root, names)), names, np.full(len(names), -1))


def _told(file: EmbeddingFile, progress: Progress) -> Iterator:
    done = 0
    for rows in file.rows():
        yield rows
        done += len(rows.names)
        progress(done, done)  # the total is only known at the end
