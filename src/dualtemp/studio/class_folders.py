"""Write images as class folders, linked or copied, which training and other tools can read."""

import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path

import numpy as np

from dualtemp.data.loading.decode import UnreadableImage
from dualtemp.errors import UserError, writing
from dualtemp.studio.background import Progress
from dualtemp.studio.collection import Collection

WITHOUT_LABEL = "unlabeled"


def write_class_folders(
    images: Collection, labels: Mapping[int, str | None], target: Path, copy: bool, progress: Progress
) -> int:
    """Write images, given by number with their label, to TARGET/LABEL/FILE; returns their number.

    The folder appears only when it is complete; its files are symbolic links, or copies. Images without a file of their
    own are written as PNG. If no image has a label, all go into the folder itself.
    """
    if os.path.lexists(target):
        raise UserError(f"{target} exists already")
    flat = all(label is None for label in labels.values())
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    written = 0
    with writing(target, "make room, or start the studio with another --export"):
        try:
            part.mkdir(parents=True)
            names: dict[Path, set[str]] = {}
            folders = _distinct_folders(label or WITHOUT_LABEL for label in labels.values())
            for done, (number, label) in enumerate(sorted(labels.items()), 1):
                folder = part if flat else part / folders[label or WITHOUT_LABEL]
                if folder not in names:
                    folder.mkdir(exist_ok=True)
                    names[folder] = set()
                written += _write(images, number, folder, names[folder], copy)
                progress(done, len(labels))
            part.replace(target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return written


def write_pixels(images: Collection, labels: Mapping[int, str | None], target: Path) -> None:
    """Write images that are in memory, and their labels if all have one, to an .npz file that training reads."""
    assert images.images is not None
    tensor = images.images.images.source.tensor
    assert tensor is not None
    chosen = sorted(labels)
    pixels = tensor[images.numbers[chosen].tolist()].permute(0, 2, 3, 1).cpu().numpy()
    arrays = {"images": np.ascontiguousarray(pixels)}
    words = [labels[number] for number in chosen]
    if all(word is not None for word in words):
        classes = sorted({word for word in words if word is not None})
        place = {word: code for code, word in enumerate(classes)}
        arrays["labels"] = np.array([place[word] for word in words if word is not None], np.int64)
        arrays["classes"] = np.array(classes)
    with writing(target, "make room, or start the studio with another --runs"):
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            with open(part, "wb") as file:
                np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def folder_name(label: str) -> str:
    """Turn a label into the name of a folder that cannot lead elsewhere."""
    name = re.sub(r"[/\\\0:*?\"<>|\x00-\x1f]", "_", label).strip(" .")
    name = name.encode()[:200].decode(errors="ignore")
    return name or "_"


def _distinct_folders(labels: Iterable[str]) -> dict[str, str]:
    """The folder of each label; labels that would share one, such as a/b and a_b, get a number."""
    found: dict[str, str] = {}
    for label in sorted(set(labels), key=lambda label: (label != folder_name(label), label)):
        own, taken = folder_name(label), set(found.values())
        numbered = (f"{own}-{number}" for number in count(2))
        found[label] = own if own not in taken else next(name for name in numbered if name not in taken)
    return found


def _write(images: Collection, number: int, folder: Path, taken: set[str], copy: bool) -> int:
    path = images.path(number)
    own = images.names[number].rpartition("/")[2] if path is not None else f"{folder_name(images.names[number])}.png"
    name = own
    while name in taken:
        name = f"{number}-{name}"
    taken.add(name)
    if path is None:
        try:
            picture = images.picture(number, enough=10**6)
        except UnreadableImage:
            return 0
        if picture is None:
            return 0
        picture.save(folder / name, "PNG")
    elif copy:
        if not path.is_file():
            return 0
        shutil.copyfile(path, folder / name)
    else:
        os.symlink(path.resolve(), folder / name)
    return 1
