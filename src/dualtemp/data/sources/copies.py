"""Find images that are the same: links to one file, hard links, and exact copies.

Files are compared by inode, then by size, then by a hash of their first and last bytes. Only those that still agree,
hardly any in most sets, are read completely.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import numpy as np
from torch import Tensor

from dualtemp import distributed
from dualtemp.data.image_source import ImageSource
from dualtemp.data.images import ImageSet
from dualtemp.data.loading.decode import NotRead, UnreadableImage, open_image
from dualtemp.progress_bar import image_progress

ENDS = 4096  # bytes at each end of a file
CHUNK = 1 << 20
AT_ONCE = 8  # files: the disk is the bottleneck
SUBMITTED = 4096  # files submitted at a time to the threads that compare them
TASK = 64  # files per task at most: a task for a single file costs more than the comparison
MANY = 20_000  # files from which on progress is shown


def copies(sources: Iterable[ImageSource]) -> np.ndarray:
    """For each image of the sources, one after another, the number of the first one with the same content: int64 (N,).

    Images in memory are compared by pixels, others by their encoded bytes; an unreadable image equals no other.
    """
    sources = list(sources)
    tensors = [each.tensor for each in sources if each.tensor is not None]
    if len(tensors) == len(sources):
        return _first_alike([digest for each in tensors for digest in _digests(each)])
    digests = [each.digests() for each in sources]
    if all(each is not None for each in digests):
        return _of_digests(sources, np.concatenate([each for each in digests if each is not None]))
    images = ((each, i) for each in sources for i in range(len(each)))
    paths = [os.fspath(path) for source, i in images if (path := source.path(i)) is not None]  # str: a fifth of a Path
    if len(paths) == sum(map(len, sources)):
        return _of_files(paths)
    return _of_contents([(each, i) for each in sources for i in range(len(each))])


def are_alike_in_kind(sources: Iterable[ImageSource]) -> bool:
    """Whether all sources are in memory, or all are files, or all have known digests: comparing them is then fast."""
    kinds = [
        (each.tensor is not None, each.digests() is not None, len(each) > 0 and each.path(0) is not None)
        for each in sources
    ]
    return any(all(kind) for kind in zip(*kinds, strict=True))


def copies_by_pixels(sources: Sequence[ImageSource]) -> np.ndarray | None:
    """Like `copies`, but compare images in memory with image files, by decoded pixels; None for other sources.

    Files are decoded only if their header has the size of the images in memory.
    """
    shapes = {tuple(each.tensor.shape[1:]) for each in sources if each.tensor is not None}
    if len(shapes) != 1 or any(len(each) and each.path(0) is None for each in sources if each.tensor is None):
        return None
    channels, *size = shapes.pop()
    kinds: list[Hashable] = []
    for source in sources:
        if source.tensor is not None:
            kinds += _digests(source.tensor)
            continue
        try:
            kinds += _digests_of_files(source.convert(channels=channels), (size[0], size[1]), len(kinds))
        except ValueError:  # not convertible to this number of channels
            return None
    return _first_alike(kinds)


def _digests_of_files(source: ImageSource, size: tuple[int, int], first: int) -> list[Hashable]:
    """Digests of the decoded pixels of all images; for other sizes and unreadable files, numbers from `first` on."""

    def digest(i: int) -> Hashable:
        try:
            if source.header(i)[:2] == size:
                return _digests(source.pixels(i).unsqueeze(0))[0]
        except UnreadableImage:
            pass
        return first + i

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(digest, range(len(source))))


@dataclass(frozen=True)
class Twins:
    """Pairs of names of equal images. across: a test image and a training image; labels: two with different labels."""

    across: list[tuple[str, str]] = field(default_factory=list)
    labels: list[tuple[str, str]] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Describe the problems, one line each."""
        wrong = {
            "exact copies of test images among the training images, so accuracies are too high": self.across,
            "exact copies with different labels": self.labels,
        }
        return [f"{what}: {len(pairs):,}, the first {' = '.join(pairs[0])}" for what, pairs in wrong.items() if pairs]


def twins(train: ImageSet, test: ImageSet | None, unlabeled: ImageSet | None = None) -> Twins:
    """Find exact copies that spoil a measurement: of test images among those for training, or with different labels."""
    named = {"train": train, "unlabelled": unlabeled, "test": test}
    parts = {name: images for name, images in named.items() if images is not None}
    seen = len(train) + (0 if unlabeled is None else len(unlabeled))
    alike = copies(images.source for images in parts.values())
    names = [images.image_name(i, f"{part}/") for part, images in parts.items() for i in range(len(images))]
    given = [
        [-1] * len(images) if images.labels is None or images is unlabeled else images.labels.tolist()
        for images in parts.values()
    ]
    labels = [label for part in given for label in part]
    learned = set(alike[:seen].tolist())
    across, differing = [], []
    for i in np.flatnonzero(alike != np.arange(len(alike))).tolist():
        first = int(alike[i])
        if i >= seen and first in learned:
            across.append((names[i], names[first]))
        if labels[i] != labels[first] and min(labels[i], labels[first]) >= 0:
            differing.append((names[i], names[first]))
    return Twins(across, differing)


def _digests(pixels: Tensor) -> list[bytes]:
    return [blake2b(np.ascontiguousarray(image).data, digest_size=16).digest() for image in pixels.cpu().numpy()]


def _of_digests(sources: list[ImageSource], digests: np.ndarray) -> np.ndarray:
    """Like `copies`, from known digests of the contents, uint8 (N, D)."""
    keys = np.ascontiguousarray(digests).view(np.dtype((np.void, digests.shape[1])))[:, 0]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    found, begins = first[inverse], np.cumsum([0, *map(len, sources)])
    for number in np.unique(found[found != np.arange(len(found))]).tolist():
        which = int(np.searchsorted(begins, number, side="right")) - 1
        if _is_spoiled(sources[which], number - int(begins[which])):  # images spoiled alike are no copies
            alike = np.flatnonzero(found == number)
            found[alike] = alike
    return found


def _is_spoiled(source: ImageSource, i: int) -> bool:
    """Whether the content of image i is damaged, not just unavailable for now, as when its shard is gone."""
    try:
        source.header(i)
    except UnreadableImage as error:
        return not isinstance(error.reason, NotRead)
    return False


def _of_contents(images: list[tuple[ImageSource, int]]) -> np.ndarray:
    def digest(number: int) -> Hashable:
        source, i = images[number]
        try:
            return blake2b(source.content(i), digest_size=16).digest()
        except OSError:
            return number

    with ThreadPoolExecutor(AT_ONCE) as pool:
        kinds = list(pool.map(digest, range(len(images))))
    for alike in _groups(dict(enumerate(kinds))):
        if _is_spoiled(*images[alike[0]]):  # images spoiled alike are no copies
            for number in alike:
                kinds[number] = number
    return _first_alike(kinds)


def _of_files(paths: list[str]) -> np.ndarray:
    numbers: list[Hashable] = list(range(len(paths)))  # each file is its own representative, until a copy is found
    one_file: dict[tuple[int, int], int] = {}
    lengths: dict[int, Hashable] = {}
    for i, path in enumerate(paths):
        if (found := _stat(path)) is not None:
            numbers[i] = one_file.setdefault((found.st_dev, found.st_ino), i)
            if numbers[i] == i:
                lengths[i] = found.st_size
    del one_file  # frees 200 MB for a million files
    sizes = _groups(lengths)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for how in (_ends, _whole):
            sizes = _groups(_hashed(sizes, paths, how, pool))
    for alike in sizes:
        # Files emptied or damaged alike are no copies: a split would change with them.
        if _is_image(Path(paths[alike[0]])):
            for i in alike:
                numbers[i] = alike[0]
    return _first_alike([numbers[number] for number in numbers])  # pyright: ignore[reportCallIssue, reportArgumentType]


def _is_image(path: Path) -> bool:
    try:
        open_image(path).close()
    except Exception:  # PIL's plugins raise nearly anything on broken files
        return False
    return True


def _groups(kinds: dict[int, Hashable]) -> list[list[int]]:
    """The numbers of each kind that occurs twice or more, ascending within each group."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for i, kind in kinds.items():
        found[kind].append(i)
    return [alike for alike in found.values() if len(alike) > 1]


def _hashed(
    groups: list[list[int]], paths: list[str], how: Callable[[str], bytes | None], pool: ThreadPoolExecutor
) -> dict[int, Hashable]:
    """The number of each file's group and the file's hash, without unreadable files."""
    members = [(number, i) for number, alike in enumerate(groups) for i in alike]
    found: dict[int, Hashable] = {}
    with image_progress(quiet=len(members) < MANY or distributed.rank() > 0, what="files compared") as show:
        for start in range(0, len(members), SUBMITTED):  # a million at once would need a gigabyte for tasks
            some = members[start : start + SUBMITTED]
            size = min(TASK, -(-len(some) // (4 * AT_ONCE)))
            tasks = [[paths[i] for _, i in some[at : at + size]] for at in range(0, len(some), size)]
            digests = pool.map(lambda task: [how(path) for path in task], tasks)
            pairs = zip(some, chain.from_iterable(digests), strict=True)
            found |= {i: (number, digest) for (number, i), digest in pairs if digest is not None}
            if show is not None:
                show(start + len(some), len(members))
    return found


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _ends(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            digest = blake2b(file.read(ENDS), digest_size=16)
            file.seek(max(0, os.fstat(file.fileno()).st_size - ENDS))
            digest.update(file.read(ENDS))
    except OSError:
        return None
    return digest.digest()


def _whole(path: str) -> bytes | None:
    digest = blake2b(digest_size=16)
    try:
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError:
        return None
    return digest.digest()


def _first_alike(kinds: list[Hashable] | list[bytes]) -> np.ndarray:
    first: dict[Hashable, int] = {}
    return np.array([first.setdefault(kind, i) for i, kind in enumerate(kinds)], dtype=np.int64)
