"""Index shards once: the index is kept in the cache folder, checked shard by shard, and made anew where it is stale."""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import blake2b
from pathlib import Path

from dualtemp import distributed
from dualtemp.atomic_write import whole_file
from dualtemp.cache_folder import cache_folder
from dualtemp.data.shards.contents import ShardContents
from dualtemp.data.shards.locations import Place
from dualtemp.data.shards.shard_index import ShardFile, ShardIndex, joined
from dualtemp.data.shards.shard_reading import local_stamp
from dualtemp.data.shards.tar_shard import list_tar
from dualtemp.file_lock import locked
from dualtemp.machine import cores
from dualtemp.progress_bar import image_progress

AT_ONCE = 4  # shards
SAVED_EVERY = 60.0  # seconds: what a process that is killed loses of a long indexing at most

NOTHING = joined([], [])


def indexed(places: Sequence[Place]) -> ShardIndex:
    """Return the index of shards, from the cache where it is there and the shards have not changed.

    A shard that cannot be read is in it without images, and with `trouble`; one that was indexed before keeps its
    images, which are unreadable then, so that the order of all others stays.
    """
    path = index_path(places)
    with contextlib.ExitStack() as held:
        kept = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(path.with_suffix(".lock"), patience=math.inf, remove=True))
        except OSError:
            kept = False  # a cache that cannot be written: indexed each time
        known = _read(path)
        stamps = {place: _stamp(place) for place in places}
        if known is not None and all(_same(known, i, place, stamps[place]) for i, place in enumerate(places)):
            return known
        return _made(places, stamps, known or NOTHING, path if kept else None)


def index_path(places: Sequence[Place]) -> Path:
    """Where the index of shards is kept."""
    key = blake2b("\n".join(f"{each.place}\0{each.name}" for each in places).encode(errors="surrogateescape"))
    return cache_folder() / "shards" / f"{key.hexdigest()[:32]}.npz"


def _read(path: Path) -> ShardIndex | None:
    try:
        return ShardIndex.from_bytes(path.read_bytes())
    except (OSError, ValueError):
        return None


def _stamp(place: Place) -> str | None:
    """What a shard looks like now; None if it is not there."""
    try:
        return local_stamp(place.place)
    except OSError:
        return None


def _same(known: ShardIndex, number: int, place: Place, stamp: str | None) -> bool:
    """Whether what is known of a shard still holds; of one that has disappeared, it does."""
    if len(known.files) <= number or (known.files[number].place, known.files[number].name) != (place.place, place.name):
        return False
    before = known.files[number].stamp
    return stamp in (None, before) and bool(before)


def _made(places: Sequence[Place], stamps: dict[Place, str | None], known: ShardIndex, path: Path | None) -> ShardIndex:
    before = {file.place: number for number, file in enumerate(known.files) if file.stamp}
    files: dict[Place, ShardFile] = {}
    contents: dict[Place, ShardContents] = {}
    for place in places:
        number, stamp = before.get(place.place), stamps[place]
        if number is not None and stamp in (None, known.files[number].stamp):
            files[place], contents[place] = known.files[number], known.of_shard(number)
    left, saved = [place for place in places if place not in files], time.monotonic()

    def together() -> ShardIndex:
        there = [place for place in places if place in files]
        return joined([files[place] for place in there], [contents[place] for place in there])

    with (
        image_progress(quiet=distributed.rank() > 0, what="shards") as show,
        ThreadPoolExecutor(min(AT_ONCE, cores())) as pool,
    ):
        running = {pool.submit(_listed, place, stamps[place]): place for place in left}
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


def _listed(place: Place, stamp: str | None) -> tuple[ShardFile, ShardContents]:
    if stamp is None:
        return _without_images(place, "the shard is not there")
    try:
        contents = _lister(place.place)(Path(place.place))
    except OSError as error:
        return _without_images(place, error.strerror or str(error))
    return ShardFile(place.place, place.name, stamp, contents.classes, contents.trouble), contents


def _lister(place: str) -> Callable[[Path], ShardContents]:
    return list_tar


def _without_images(place: Place, why: str) -> tuple[ShardFile, ShardContents]:
    from dualtemp.data.shards.contents import Gatherer

    return ShardFile(place.place, place.name, trouble=why), Gatherer().contents()


def _write(index: ShardIndex, path: Path) -> None:
    with contextlib.suppress(OSError), whole_file(path) as file:
        file.write(index.to_bytes())
