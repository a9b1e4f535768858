"""Open any images: a named set, a folder of images, an .npz file, a folder with train.npz, or shards."""

import os
from pathlib import Path

from dualtemp.data.images import Splits
from dualtemp.data.shards.locations import absolute, is_shard_folder, looks_like_shards
from dualtemp.data.sources.cache import cached_set
from dualtemp.data.sources.catalogue import looks_like_path, named_set, resolved_name, unknown_set
from dualtemp.data.sources.digits import open_digits
from dualtemp.data.sources.download import cached_or_fetched
from dualtemp.data.sources.folder import open_folder
from dualtemp.data.sources.imagenet100 import open_imagenet100
from dualtemp.data.sources.label_file import AUTO
from dualtemp.data.sources.npz import is_npz_folder, open_npz
from dualtemp.data.sources.registry import openers
from dualtemp.data.sources.shards import open_shards
from dualtemp.errors import UserError


def open_source(
    source: str | Path,
    *,
    labels: bool = True,
    download: bool = True,
    root: Path | None = None,
    together: bool = True,
    labels_from: Path | str | None = AUTO,
    earlier_parts: bool = False,
) -> Splits:
    """Open images by set name ("cifar10", "digits", ...), by path, or as shards ("shards/{000..127}.tar").

    A set's name takes precedence over a folder of that name: write ./cifar10 for the folder.
    labels=False ignores labels and class folders; download=False uses only what is in the cache;
    root is the ImageNet folder of imagenet100 (default: `imagenet100` or `imagenet` in the cache folder);
    together=False holds out by names alone, as earlier runs did: copies of one image may then be separated;
    labels_from is a CSV file with the labels of a folder's images (label_file.py), by default its labels.csv;
    earlier_parts recognizes the parts of a folder by the rules of earlier versions (folder.py).
    """
    if means_shards(source):
        refuse_label_file(source, labels_from)
        return open_shards(source, labels=labels, together=together)
    path = named_path(source)
    if path is not None:
        return open_path(path, labels, together, labels_from, earlier_parts)
    refuse_label_file(source, labels_from)
    entry = named_set(str(source))
    assert entry is not None  # else named_path has raised
    if entry.name == "digits":
        return open_digits(labels)
    if entry.name == "imagenet100":
        return open_imagenet100(root, labels)
    folder = cached_set(entry.name) or cached_or_fetched(entry.name, download)
    return open_npz(folder, entry.name, labels)


def named_path(source: str | Path) -> Path | None:
    """Return the path that a source is, None if it is the name of a set; raises UserError if it is neither."""
    text = str(source)
    if not text.strip():
        raise UserError("images: an empty name; give a folder of images (. is this one), an .npz file, or a set's name")
    if isinstance(source, str) and not looks_like_path(text) and named_set(text):
        return None
    path = Path(os.path.expanduser(source))  # unchanged if there is no such home
    if not os.path.exists(path):
        if isinstance(source, str) and not looks_like_path(text):
            raise unknown_set(text)
        raise UserError(f"{path}: no such folder or file; give a folder of images, an .npz file, or the name of a set")
    return path.resolve() if path.name in ("", "..") else path


def refuse_label_file(source: str | Path, labels_from: Path | str | None) -> None:
    """Raise UserError if a file of labels is given for a source other than a folder."""
    if labels_from not in (None, AUTO):
        raise UserError(f"--labels {labels_from}: {source} has its own labels, if any; leave it out, or give a folder")


def means_shards(source: str | Path) -> bool:
    """Whether a source names shards by anything but a path: braces, a pattern, an address, a set of the hub."""
    return looks_like_shards(str(source)) and not os.path.exists(os.path.expanduser(source))


def is_named_set(source: str | Path) -> bool:
    """Whether a source is the name of a set, not a user's own images; raises UserError if it is neither."""
    return not means_shards(source) and named_path(source) is None


def image_folder(source: str | Path) -> Path | None:
    """The path of a source that is a folder of image files; None for all other sources."""
    path = None if means_shards(source) else named_path(source)
    plain = path is not None and path.is_dir() and not is_npz_folder(path) and not is_shard_folder(path)
    return path if plain else None


def absolute_source(source: str | Path) -> str:
    """The canonical name of a set, or an absolute path, so that it means the same source in any folder."""
    if means_shards(source):
        return absolute(str(source))
    path = named_path(source)
    return resolved_name(str(source)) if path is None else str(path.resolve())


def short_name(source: str | Path) -> str:
    """A short name for display: that of the set, of the folder, or of the file without its ending."""
    at = Path(absolute_source(source))
    if means_shards(source):
        return at.name if at.suffix not in (".tar", ".parquet") else at.parent.name
    return at.stem if at.is_file() else at.name


def open_path(
    path: Path,
    labels: bool = True,
    together: bool = True,
    labels_from: Path | str | None = AUTO,
    earlier_parts: bool = False,
) -> Splits:
    """Open a folder of images, of shards or with train.npz, or a file whose ending a source has registered."""
    if image_folder(path) is not None:
        return open_folder(path, labels=labels, together=together, labels_from=labels_from, earlier_parts=earlier_parts)
    refuse_label_file(path, labels_from)
    if not path.is_file():
        return (open_npz if is_npz_folder(path) else open_shards)(path, labels=labels, together=together)
    opener = openers().get(path.suffix.lower())
    if opener is None:
        known = " or ".join(f"{'an' if ending == '.npz' else 'a'} {ending} file" for ending in openers())
        raise UserError(f"{path}: a file, but not {known}; give a folder of images or {known}")
    return opener(path, labels=labels, together=together)
