"""Open a folder of image files as a set: find the images, the part that each belongs to, and its class.

FOLDER/train/CLASS/...  FOLDER/test/CLASS/...     or val/, validation/, valid/; unlabelled/ beside them
FOLDER/train/CLASS/...  FOLDER/unlabelled/...     a tenth of each class of train/ is held out
FOLDER/CLASS/...                                  a tenth of each class is held out
FOLDER/...                                        a flat folder: no labels, a tenth is held out
FOLDER/..., FOLDER/labels.csv                     a flat folder with labels; files that are not listed have none
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch

from dualtemp.data.images import FileImages, Splits
from dualtemp.data.loading.decode import FOREIGN, UnreadableImage, image_extensions, what_to_do
from dualtemp.data.sources.copies import copies
from dualtemp.data.sources.held_out import held_out
from dualtemp.data.sources.label_file import AUTO, LABEL_FILE, read_label_file
from dualtemp.data.sources.splits_of import splits_of
from dualtemp.errors import UserError

EARLIER_TEST_NAMES = ("test", "val", "validation")
TEST_NAMES = (*EARLIER_TEST_NAMES, "valid")
MEANT = {"training": "train", "testing": "test"}
UNLABELED_NAMES = ("unlabelled", "unlabeled")


@dataclass(frozen=True)
class Part:
    """Some files of a source: names relative to its folder, and the class folder of each ("" if there is none)."""

    names: list[str]
    folders: list[str]

    def where(self, keep: np.ndarray) -> "Part":
        """Return the files where `keep` (bool, N) is true."""
        index = np.flatnonzero(keep)
        return Part([self.names[i] for i in index], [self.folders[i] for i in index])


NO_FILES = Part([], [])


def open_folder(
    root: Path,
    name: str = "",
    labels: bool = True,
    only_classes: frozenset[str] | None = None,
    together: bool = True,
    labels_from: Path | str | None = AUTO,
    earlier_parts: bool = False,
) -> Splits:
    """Open a folder of images.

    labels=False ignores the class folders; only_classes keeps the images of these class folders; together=False
    holds out by names alone, as earlier runs did, so that a copy of a held-out image may be trained on; labels_from: a
    CSV file of labels (label_file.py) in place of class folders, by default the labels.csv of a flat folder;
    earlier_parts: treat valid/, and unlabelled/ without a test part, as classes like train/, as earlier runs did.
    """
    parts, split = _parts(root, labels, only_classes, together, labels_from, earlier_parts)
    classes = tuple(sorted(set(parts["train"].folders) - {""})) if labels else ()
    if labels and "test" in parts:
        _check_classes(root, parts["train"], parts["test"])
    files = {part: FileImages(root, tuple(found.names)) for part, found in parts.items()}
    labeled = [part for part in parts if classes and part != "unlabelled"]
    known = {part: _labels(parts[part], classes) for part in labeled}
    return splits_of(name or root.name, files, known, classes, foreign_images(root), split)


def _labels(part: Part, classes: tuple[str, ...]) -> torch.Tensor:
    number = {folder: label for label, folder in enumerate(classes)}
    return torch.tensor([number[folder] for folder in part.folders], dtype=torch.int64)


def folder_files(root: Path, labels: bool = True) -> dict[str, FileImages]:
    """The image files of a folder by part ("train", "test", "unlabelled"), readable or not."""
    return {part: files for part, (files, _) in classed_files(root, labels).items()}


def classed_files(
    root: Path, labels: bool = True, labels_from: Path | str | None = AUTO
) -> dict[str, tuple[FileImages, list[str]]]:
    """Like `folder_files`, with the class name of each file, "" if it has none."""
    parts, _ = _parts(root, labels, None, True, labels_from)
    return {part: (FileImages(root, tuple(found.names)), found.folders) for part, found in parts.items()}


def given_labels(root: Path, labels_from: Path | str | None = AUTO) -> dict[str, str] | None:
    """The labels of a folder's images by name, from a CSV file; None if class folders decide."""
    if labels_from is None:
        return None
    if labels_from != AUTO:
        return _read_labels(Path(labels_from), root, find_images(root))
    if not (root / LABEL_FILE).is_file():
        return None
    names = find_images(root)
    parts = ("train/", *(f"{name}/" for name in (*TEST_NAMES, *UNLABELED_NAMES)))
    flat = not any(
        "/" in name.removeprefix(next((part for part in parts if name.startswith(part)), "")) for name in names
    )
    return _read_labels(root / LABEL_FILE, root, names) if flat else None


def _read_labels(path: Path, root: Path, names: list[str]) -> dict[str, str]:
    return read_label_file(path, names, left_out=[each.name for each in foreign_images(root)])


def find_images(folder: Path, only: frozenset[str] | None = None) -> list[str]:
    """Names of all image files below a folder, relative, posix, sorted; hidden ones and other files are ignored.

    only: search only these top-level folders.
    """
    return _find(folder, image_extensions(), only)


def foreign_images(folder: Path) -> list[UnreadableImage]:
    """Image files below a folder in unsupported formats: HEIC, cameras' raw files, JPEG XL."""
    found = _find(folder, FOREIGN - image_extensions(), None)
    return [UnreadableImage(name, what_to_do(os.path.splitext(name)[1])) for name in found]


def _find(folder: Path, endings: frozenset[str], only: frozenset[str] | None) -> list[str]:
    names: list[str] = []

    def walk(at: Path, prefix: str, above: tuple[str, ...]) -> None:
        real = os.path.realpath(at)
        if real in above:  # a link to a folder that contains it
            return
        try:
            entries = sorted(os.scandir(at), key=lambda entry: entry.name)
        except FileNotFoundError:
            if not above:
                raise
            return  # removed since its parent was listed
        for entry in entries:
            if entry.name.startswith(".") or (only is not None and not prefix and entry.name not in only):
                continue
            if _is_folder(entry):
                walk(Path(entry.path), f"{prefix}{entry.name}/", (*above, real))
            elif os.path.splitext(entry.name)[1].lower() in endings and _may_be_image(entry):
                names.append(prefix + entry.name)

    try:
        walk(folder, "", ())
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be listed ({error.strerror}); check its permissions") from error
    return sorted(names)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _may_be_image(entry: os.DirEntry[str]) -> bool:
    """Whether this is a regular file, a link to one, or a dangling link (reported as unreadable); no pipe or device."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:  # a link to itself
        return True


def name_keys(names: Iterable[str]) -> np.ndarray:
    """One uint64 per name: the first eight bytes of its blake2b hash, big-endian."""
    digests = b"".join(blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64)


def _parts(
    root: Path,
    labels: bool,
    only_classes: frozenset[str] | None,
    together: bool,
    labels_from: Path | str | None,
    earlier_parts: bool = False,
) -> tuple[dict[str, Part], str]:
    """The parts of a folder by name, and a description of how they were separated."""
    given = given_labels(root, labels_from) if labels else None
    train_folder, tests, extra = _part_folders(root, earlier_parts)
    if train_folder is None:
        return _hold_out(root, *_labeled(_part(root, "", labels, only_classes, given), given), together)
    train, unlisted = _labeled(_part(root, "train", labels, only_classes, given), given)
    if not train.names:
        raise UserError(f"{root}: no image of train/ has a label; label some of them, or train with --no-labels")
    found = {name: _labeled(_part(root, name, labels, only_classes, given), given)[0] for name in tests}
    # Take the first part that has labels if train/ has: ImageNet's test/ has none, its val/ does.
    fitting = [name for name in tests if found[name].names and bool(found[name].folders[0]) == bool(train.folders[0])]
    test = next(iter(fitting or [name for name in tests if found[name].names]), None)
    more = _part(root, extra, False, None, None) if extra else NO_FILES
    more = Part(unlisted.names + more.names, unlisted.folders + more.folders)
    if test is None:
        return _hold_out(root, train, more, together)
    unused = [f"{name}/" for name in tests if name != test and found[name].names]
    split = f"train/ and {test}/" + (f"; {' and '.join(unused)} not used" if unused else "")
    return _present({"train": train, "test": found[test], "unlabelled": more}), split


def folder_parts(root: Path, labels: bool = True) -> dict[str, Part]:
    """All images by the folder of their part, such as "train" and "val"; "" if there are no parts."""
    train, tests, extra = _part_folders(root)
    given = given_labels(root) if labels else None
    words = ("",) if train is None else (train, *tests)
    parts = {word: _part(root, word, labels, None, given) for word in words}
    for part in parts.values() if given is not None else ():
        lacking = [name for name, label in zip(part.names, part.folders, strict=True) if not label]
        if 0 < len(lacking) < len(part.names):
            raise UserError(
                f"{root}: {LABEL_FILE} has no label for {len(lacking):,} images ('{lacking[0]}' is the first); label "
                "them, move them to unlabelled/, or ask for no labels"
            )
    parts |= {extra: _part(root, extra, False, None, None)} if extra else {}
    return {word: part for word, part in parts.items() if part.names}


def _part_folders(root: Path, earlier: bool = False) -> tuple[str | None, list[str], str | None]:
    """The folders of the training, test and unlabeled parts; the first is None if there are no parts."""
    try:
        below = {entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
    except OSError as error:
        raise UserError(f"{root}: cannot be listed ({error.strerror}); check its permissions") from error
    tests = [name for name in (EARLIER_TEST_NAMES if earlier else TEST_NAMES) if name in below]
    parts = {"train"} if earlier else {"train", *UNLABELED_NAMES}
    # train/ beside other folders, but without a test part, is a class (car, train, tram).
    if "train" not in below or not (tests or below <= parts):
        return None, [], None
    return "train", tests, next((name for name in UNLABELED_NAMES if name in below), None)


def refuse_misnamed_parts(root: Path) -> None:
    """Raise UserError if all folders are parts under other names, such as Train/ and Test/, or training/ and testing/.

    They would count as classes, and training would use the test images. Only new runs check this: earlier runs resume
    as they began.
    """
    below = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    meant = {name: MEANT.get(name.lower(), name.lower()) for name in below}
    parts = set(meant.values())
    if "train" not in parts or not parts & set(TEST_NAMES) or parts - {"train", *TEST_NAMES, *UNLABELED_NAMES}:
        return
    if wrong := [f"{name}/ to {part}/" for name, part in meant.items() if name != part]:
        raise UserError(f"{root}: its folders look like parts of a set, not like classes: rename {' and '.join(wrong)}")


def _labeled(part: Part, given: dict[str, str] | None) -> tuple[Part, Part]:
    """Split files into those that a CSV file labels and the others; without such a file, all count as labeled."""
    if given is None:
        return part, NO_FILES
    listed = np.array([bool(folder) for folder in part.folders], dtype=bool)
    return part.where(listed), part.where(~listed)


def _part(
    root: Path, split: str, labels: bool, only_classes: frozenset[str] | None, given: dict[str, str] | None
) -> Part:
    names = find_images(root / split, only_classes)
    if not names and split in ("", "train"):
        if foreign := foreign_images(root / split):
            raise UserError(f"{root / split}: its {len(foreign)} image files cannot be read, the first {foreign[0]}")
        raise UserError(f"{root / split}: no image file in it; expected images, class folders, or train/ and test/")
    if given is not None:
        whole = [f"{split}/{name}" if split else name for name in names]
        return Part(whole, [given.get(name, "") for name in whole])
    folders = [name.split("/", 1)[0] if labels and "/" in name else "" for name in names]
    loose = [name for name, folder in zip(names, folders, strict=True) if not folder]
    if labels and loose and len(loose) < len(names):
        raise UserError(
            f"{root / split}: {len(loose)} image files lie beside the class folders ('{loose[0]}' is the first); move "
            "them into a class folder or away, or ask for no labels"
        )
    return Part([f"{split}/{name}" if split else name for name in names], folders)


def _hold_out(root: Path, whole: Part, more: Part, together: bool) -> tuple[dict[str, Part], str]:
    """Hold out a tenth; drop images of `more`, the unlabeled ones, that are copies of held-out images."""
    _, groups = np.unique(np.array(whole.folders, dtype=object).astype(str), return_inverse=True)
    count = len(whole.names)
    alike = np.arange(count + len(more.names))
    if together:
        alike = copies([FileImages(root, (*whole.names, *more.names))])
    # Hash names without train/, so that the same images are held out with and without that folder.
    test = held_out(groups, name_keys([name.removeprefix("train/") for name in whole.names]), alike[:count])
    if not test.any():
        return _present({"train": whole, "unlabelled": more}), "no image held out: too few"
    split = "a tenth held out, balanced, by a hash of the file name"
    if (twice := count - len(set(alike[:count].tolist()))) > 0:
        split += f"; {twice:,} {'name' if twice == 1 else 'names'} of images that have another stay with it"
    left = more.where(~np.isin(alike[count:], alike[:count][test]))
    return _present({"train": whole.where(~test), "test": whole.where(test), "unlabelled": left}), split


def _present(parts: dict[str, Part]) -> dict[str, Part]:
    return {name: part for name, part in parts.items() if part.names or name == "train"}


def _check_classes(root: Path, train: Part, test: Part) -> None:
    if bool(train.folders[0]) != bool(test.folders[0]):
        has, lacks = ("train", "test") if train.folders[0] else ("test", "train")
        raise UserError(
            f"{root}: the {has} part has class folders, the {lacks} part has none; expected both or neither, or ask "
            "for no labels"
        )
    unseen = sorted(set(test.folders) - set(train.folders))
    if unseen:
        part = test.names[0].split("/", 1)[0]
        raise UserError(
            f"{root}: class '{unseen[0]}' is in the test part only; expected every class in train/: put "
            f"train/{unseen[0]} back, take {part}/{unseen[0]} away, or train with --no-labels"
        )
