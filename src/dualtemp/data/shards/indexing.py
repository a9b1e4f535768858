"""Index shards once: the index is kept in the cache folder, checked shard by shard, and renewed where it is stale."""

import contextlib
import errno
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dualtemp import distributed
from dualtemp.atomic_write import whole_file
from dualtemp.cache_folder import mark_used, shards_folder
from dualtemp.data.shards.contents import Gatherer, ShardContents
from dualtemp.data.shards.locations import Place
from dualtemp.data.shards.remote import download, is_remote, open_remote, remote_stamp, size_of
from dualtemp.data.shards.shard_cache import COPY, IMAGES, copying
from dualtemp.data.shards.shard_index import ShardFile, ShardIndex, joined
from dualtemp.data.shards.shard_reading import local_stamp
from dualtemp.data.shards.tar_shard import list_tar
from dualtemp.file_lock import locked
from dualtemp.machine import cores
from dualtemp.progress_bar import image_progress

AT_ONCE = 4  # shards
SAVED_EVERY = 60.0  # seconds of indexing that a killed process loses at most

BUFFER = 1 << 20

NOTHING = joined([], [])
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Copying = Callable[[str], AbstractContextManager[BinaryIO | None]]  # COPY or IMAGES -> a file for a copy of this kind


class Stamp(NamedTuple):
    """The present stamp of a shard; None and the reason if it is not available."""

    text: str | None
    missing: str = ""


def indexed(places: Sequence[Place]) -> ShardIndex:
    """Return the index of shards, from the cache as far as the shards have not changed.

    An unreadable shard is in it without images, and with `trouble`. A shard that has been indexed but is no longer
    available keeps its images, which are then unreadable, so that the order of all others stays the same.
    """
    path = index_path(places)
    with contextlib.ExitStack() as held:
        kept = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(path.with_suffix(".lock"), patience=math.inf, remove=True))
        except OSError:
            kept = False  # the cache is not writable: index each time
        known = _read(path)
        stamps = _stamps(places)
        if known is not None and all(_same(known, i, place, stamps[place].text) for i, place in enumerate(places)):
            return known
        return _made(places, stamps, known or NOTHING, path if kept else None)


def index_path(places: Sequence[Place]) -> Path:
    """The path of the index of these shards."""
    key = blake2b("\n".join(f"{each.place}\0{each.name}" for each in places).encode(errors="surrogateescape"))
    return shards_folder() / f"{key.hexdigest()[:32]}.npz"


def _read(path: Path) -> ShardIndex | None:
    try:
        known = ShardIndex.from_bytes(path.read_bytes())
    except (OSError, ValueError):
        return None
    mark_used(path)
    return known


def _stamps(places: Sequence[Place]) -> dict[Place, Stamp]:
    if not any(is_remote(place.place) for place in places):
        return {place: _stamp(place) for place in places}
    with ThreadPoolExecutor(AT_ONCE * 2) as pool:
        return dict(zip(places, pool.map(_stamp, places), strict=True))


def _stamp(place: Place) -> Stamp:
    try:
        return Stamp((remote_stamp if is_remote(place.place) else local_stamp)(place.place))
    except FileNotFoundError:
        return Stamp(None, "the shard is not there")
    except OSError as error:
        return Stamp(None, f"the shard cannot be read ({error.strerror or error})")


def _same(known: ShardIndex, number: int, place: Place, stamp: str | None) -> bool:
    """Whether the known index of a shard still holds; if the shard has disappeared, it does."""
    if len(known.files) <= number or (known.files[number].place, known.files[number].name) != (place.place, place.name):
        return False
    return _holds(known, number, stamp)


def _holds(known: ShardIndex, number: int, stamp: str | None) -> bool:
    """Whether a shard with this stamp (None: it has disappeared) need not be listed again.

    A shard without images and without trouble is listed again: a reader for them, such as pydicom, may be new.
    """
    file = known.files[number]
    return bool(file.stamp) and (
        stamp is None or (stamp == file.stamp and bool(known.counts[number] > 0 or file.trouble))
    )


def _made(places: Sequence[Place], stamps: dict[Place, Stamp], known: ShardIndex, path: Path | None) -> ShardIndex:
    before = {file.place: number for number, file in enumerate(known.files) if file.stamp}
    files: dict[Place, ShardFile] = {}
    contents: dict[Place, ShardContents] = {}
    for place in places:
        number, stamp = before.get(place.place), stamps[place].text
        if number is not None and _holds(known, number, stamp):
            files[place], contents[place] = known.files[number], known.of_shard(number)
    keep = frozenset(place.place for place in places)
    left, saved = [place for place in places if place not in files], time.monotonic()

    def together() -> ShardIndex:
        there = [place for place in places if place in files]
        return joined([files[place] for place in there], [contents[place] for place in there])

    with (
        image_progress(quiet=distributed.rank() > 0, what="shards") as show,
        ThreadPoolExecutor(min(AT_ONCE, cores())) as pool,
    ):
        running = {pool.submit(_listed, place, stamps[place], keep): place for place in left}
        try:
            for done, future in enumerate(as_completed(running), 1):
                place = running[future]
                files[place], contents[place] = future.result()
                if show is not None:
                    show(done, len(left))
                if path is not None and time.monotonic() - saved > SAVED_EVERY:
                    _write(together(), path)
                    saved = time.monotonic()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    made = together()
    if path is not None:
        _write(made, path)
    return made


def _listed(place: Place, stamp: Stamp, keep: frozenset[str]) -> tuple[ShardFile, ShardContents]:
    if stamp.text is None:
        return _without_images(place, stamp.missing)
    try:
        contents = _list(place, stamp.text, keep)
    except OSError as error:
        return _without_images(place, error.strerror or str(error))
    return ShardFile(place.place, place.name, stamp.text, contents.classes, contents.trouble), contents


def _list(place: Place, stamp: str, keep: frozenset[str]) -> ShardContents:
    """List a shard; if the disk gets full while it is copied, list it without a copy. Raises OSError."""
    listed = _list_parquet if place.place.lower().endswith(".parquet") else _list_tar
    try:
        return listed(place, stamp, lambda kind: copying(place.place, stamp, kind, size_of(stamp), keep))
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    return listed(place, stamp, lambda kind: contextlib.nullcontext())


def _list_tar(place: Place, stamp: str, copy_of: Copying) -> ShardContents:
    """List a tar; if it is remote, keep a copy if there is room."""
    if not is_remote(place.place):
        with open(place.place, "rb", buffering=BUFFER) as file:
            return list_tar(file)
    with copy_of(COPY) as copy:
        if copy is None:
            with open_remote(place.place, stamp) as file:
                return list_tar(file)
        download(place.place, size_of(stamp), copy)
        copy.flush()
        with open(copy.name, "rb", buffering=BUFFER) as file:
            return list_tar(file)


def _list_parquet(place: Place, stamp: str, copy_of: Copying) -> ShardContents:
    """List a Parquet file; if it is remote or compressed, keep its images, decompressed, if there is room."""
    from dualtemp.data.shards.parquet_shard import list_parquet, packs_images

    remote = is_remote(place.place)
    with open_remote(place.place, stamp) if remote else open(place.place, "rb") as file:
        if not remote and not packs_images(file):
            file.seek(0)
            return list_parquet(file)
        file.seek(0)
        with copy_of(IMAGES) as images:
            return list_parquet(file, images)


def _without_images(place: Place, why: str) -> tuple[ShardFile, ShardContents]:
    return ShardFile(place.place, place.name, trouble=why), Gatherer().contents()


def _write(index: ShardIndex, path: Path) -> None:
    with contextlib.suppress(OSError), whole_file(path) as file:
        file.write(index.to_bytes())
