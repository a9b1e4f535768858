"""Find the shards that a user names by a folder, braces or a pattern, and divide them into the parts of a set."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualtemp.data.shards.braces import expand_braces, has_braces
from dualtemp.data.shards.hub import HUB, hub_folder
from dualtemp.data.shards.remote import is_remote, list_remote
from dualtemp.errors import UserError

ENDINGS = (".tar", ".parquet")
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
TEST_WORDS = ("test", "val", "validation", "valid")
UNLABELED_WORDS = ("unlabelled", "unlabeled", "unsupervised")
_WORDS = ("train", *TEST_WORDS, *UNLABELED_WORDS)
_STARTS_WITH_PART = re.compile(rf"({'|'.join(_WORDS)})(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """A shard: its path or address, and its name relative to the folder that all have in common."""

    place: str
    name: str


def looks_like_shards(source: str) -> bool:
    """Whether a word can only mean shards: an address, a set of the hub, braces, a pattern of shards."""
    if is_remote(source) or source.startswith(HUB):
        return True
    return source.lower().endswith((*ENDINGS, *PACKED)) and (has_braces(source) or glob.has_magic(source))


def is_shard_folder(folder: Path) -> bool:
    """Whether a folder holds shards, and no image files, which would take precedence."""
    return not _any_image(folder) and any(_shards_below(folder))


def find_shards(source: str | Path) -> list[Place]:
    """List the shards of a folder, of braces or of a pattern; those named by braces need not exist."""
    text = os.path.expanduser(str(source))
    if text.startswith(HUB):
        text = hub_folder(text.removeprefix(HUB))
    if is_remote(text):
        root, paths = _remote_shards(text)
    elif os.path.isdir(text):
        root, paths = text, sorted(_shards_below(Path(text)))
    elif os.path.isfile(text):
        root, paths = os.path.dirname(text), [text]
    else:
        root = os.path.dirname(re.split(r"[{*?\[]", text, maxsplit=1)[0])
        paths = [path for each in expand_braces(text) for path in _matching(each)]
    if len(set(paths)) < len(paths):
        twice = next(path for i, path in enumerate(paths) if path in paths[:i])
        raise UserError(f"{source}: names {twice} twice; name every shard once")
    if not paths:
        raise UserError(f"{source}: no shard is called so; expected .tar or .parquet files")
    if is_remote(text):
        return [Place(path, path.removeprefix(root).lstrip("/")) for path in paths]
    return [Place(os.path.abspath(path), Path(os.path.relpath(path, root or ".")).as_posix()) for path in paths]


def _remote_shards(text: str) -> tuple[str, list[str]]:
    """The address that all shards have in common, and their own addresses."""
    if not text.lower().endswith((*ENDINGS, *PACKED)):
        return text.rstrip("/"), list_remote(text, ENDINGS)
    root = re.split(r"[{*?\[]", text, maxsplit=1)[0].rpartition("/")[0]
    paths = expand_braces(text)
    for path in paths:
        _refuse_others(path)
    magic = [path for path in paths if any(letter in path for letter in "*?[")]
    return root, [each for path in paths for each in (list_remote(path, ENDINGS) if path in magic else [path])]


def absolute(source: str) -> str:
    """The same shards by an absolute path, with braces and patterns kept; addresses stay as they are."""
    if is_remote(source) or source.startswith(HUB):
        return source
    text = os.path.expanduser(source)
    root = os.path.dirname(re.split(r"[{*?\[]", text, maxsplit=1)[0]) or "."
    return os.path.join(os.path.realpath(root), os.path.relpath(text, root))


def _matching(path: str) -> list[str]:
    _refuse_others(path)
    return sorted(glob.glob(path)) if glob.has_magic(path) and not os.path.exists(path) else [path]


def _refuse_others(path: str) -> None:
    if path.lower().endswith(PACKED):
        raise UserError(f"{path}: compressed as a whole, so it cannot be read at any place; unpack it to a plain .tar")
    if not path.lower().endswith(ENDINGS):
        raise UserError(f"{path}: not a shard; expected names that end in .tar or .parquet")


def _shards_below(folder: Path) -> Iterator[str]:
    return (path for path in _files_below(str(folder)) if path.lower().endswith(ENDINGS))


def _any_image(folder: Path) -> bool:
    from dualtemp.data.loading.decode import image_extensions

    endings = tuple(image_extensions())
    return any(path.lower().endswith(endings) for path in _files_below(str(folder)))


def _files_below(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the files below a folder as they are found, except hidden ones; links are followed, but not in circles."""
    inner: list[str] = []
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    inner.append(entry.path)
                else:
                    yield entry.path
    except OSError:
        return  # reported by whoever lists the folder
    for each in inner:
        yield from _files_below(each, (*above, real))


@dataclass(frozen=True)
class Division:
    """Shards by the word for their part ("train", "val", ...), in order of preference.

    A set without parts has the single word "". unused: words of shards that belong to no part, or "others".
    """

    shards: dict[str, list[Place]]
    unused: tuple[str, ...] = ()

    @property
    def tests(self) -> list[str]:
        """The words of the parts for measuring."""
        return [word for word in TEST_WORDS if word in self.shards]

    @property
    def unlabeled(self) -> str | None:
        """The word of the part without labels."""
        return next((word for word in UNLABELED_WORDS if word in self.shards), None)


def divide(shards: Sequence[Place]) -> Division:
    """Divide shards into parts by folders train/, test/ or val/, or by the start of names (train-00000-of-00004)."""
    by_word: dict[str, list[Place]] = {}
    for shard in shards:
        by_word.setdefault(_part_word(shard.name), []).append(shard)
    known = {word: by_word[word] for word in ("train", *TEST_WORDS, *UNLABELED_WORDS) if word in by_word}
    others = tuple(word or "others" for word in by_word if word not in known)
    if "train" not in known or not (set(known) & set(TEST_WORDS) or not others):
        return Division({"": list(shards)})
    return Division(known, others)


def _part_word(name: str) -> str:
    """The word for a shard's part: a folder's name, else the beginning of its own; "" if there is none."""
    *folders, file = name.split("/")
    for folder in folders:
        if folder.lower() in _WORDS:
            return folder.lower()
    found = _STARTS_WITH_PART.match(file)
    return found[1].lower() if found else ""
