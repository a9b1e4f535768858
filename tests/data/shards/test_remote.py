"""Shards over http from this machine: the same set, whatever fails on the way; and nothing waits for ever."""

import errno
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
import torch
from command_processes import Commands
from shard_server import ShardServer
from sharded_runs import check_kill, seen

from dualtemp.data import open_source
from dualtemp.data.loading.decode import UnreadableImage
from dualtemp.data.shards import indexing, labels, remote, shard_cache
from dualtemp.errors import UserError

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")


@pytest.fixture
def server(shards: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardServer]:
    monkeypatch.setattr(remote, "PAUSES", (0.01, 0.02))
    remote._resting.clear()
    shard_cache.find_copy.cache_clear()
    served = ShardServer(shards)
    yield served
    served.close()
    remote._resting.clear()


def test_remote_shards_are_the_same_set_with_and_without_copies(
    photos: Path, server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = f"{server.address}/train/{{000..004}}.tar"
    expected = open_source(photos / "train")
    copied = open_source(train)
    assert copied.train.fingerprint == expected.train.fingerprint
    assert copied.train.classes == ("cat", "dog"), "classes.txt is read from there too"
    gets = sum(count for (method, path), count in server.requests.items() if method == "GET" and path.endswith(".tar"))
    assert gets == 5, "each once, whole; then from the copies"
    server.requests.clear()
    assert open_source(train).train.fingerprint == expected.train.fingerprint
    assert not any(method == "GET" and path.endswith(".tar") for method, path in server.requests)
    monkeypatch.setenv("DUALTEMP_DATA", str(photos.parent / "other-cache"))
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "0")
    shard_cache.find_copy.cache_clear()
    assert open_source(train).train.fingerprint == expected.train.fingerprint
    assert not list((photos.parent / "other-cache").rglob("*.copy"))


def test_batches_are_the_same_when_images_are_asked_for_one_by_one(
    photos: Path, server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "0")
    index, views = seen(open_source(photos / "train").train, 1, 0)
    packed = open_source(f"{server.address}/train/{{000..004}}.tar").train
    for world, workers in ((1, 0), (2, 1), (4, 0)):
        found = seen(packed, world, workers)
        assert found[0] == index
        assert torch.equal(found[1], views)


@pytest.mark.parametrize("how", [500, 503, "close", "short"])
def test_what_fails_once_or_twice_is_asked_for_again(photos: Path, server: ShardServer, how: object) -> None:
    server.fail = lambda path, method, count: how if count < 3 and path.endswith("1.tar") and method == "GET" else None
    found = open_source(f"{server.address}/train/{{000..004}}.tar")
    assert found.unreadable == ()
    assert found.train.fingerprint == open_source(photos / "train").train.fingerprint
    assert server.requests["GET", "train/001.tar"] == 3


@pytest.mark.parametrize("how", [500, 503, "close"])
def test_a_shard_whose_length_is_not_told_at_first_is_asked_for_again(
    photos: Path, server: ShardServer, how: object
) -> None:
    """Its length is asked for by HEAD, then by GET; both fail twice."""
    server.fail = lambda path, method, count: how if count < 3 and path.endswith("1.tar") else None
    found = open_source(f"{server.address}/train/{{000..004}}.tar")
    assert found.unreadable == ()
    assert found.train.fingerprint == open_source(photos / "train").train.fingerprint


@pytest.mark.parametrize(
    ("how", "reason"), [(404, "is not there"), (410, "is not there"), (403, "403"), (500, "500.*, 3 times")]
)
def test_why_a_shard_is_left_out_is_told(server: ShardServer, how: int, reason: str) -> None:
    server.fail = lambda path, method, count: how if path.endswith("1.tar") else None
    (left_out,) = open_source(f"{server.address}/train/{{000..004}}.tar").unreadable
    assert left_out.name == "001.tar"
    assert re.search(reason, left_out.reason)


def test_a_shard_that_vanishes_makes_its_images_unreadable_and_the_others_stay(
    server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "0")
    train = f"{server.address}/train/{{000..004}}.tar"
    before = open_source(train, labels=False)
    server.fail = lambda path, method, count: 404 if path == "train/002.tar" else None
    after = open_source(train, labels=False)
    assert list(after.train.source.names) == list(before.train.source.names)
    reasons = []
    for i in range(len(after.train)):
        try:
            after.train.source.open(i)
        except UnreadableImage as error:
            reasons.append(error.reason)
    assert any("its shard 002.tar: " in reason and "is gone" in reason for reason in reasons)
    assert len(reasons) <= 6


def test_a_server_that_never_answers_costs_seconds_and_then_nothing(
    server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "0")
    train = f"{server.address}/train/{{000..004}}.tar"
    source = open_source(train, labels=False).train.source
    monkeypatch.setattr(remote, "STALL", 0.3)
    server.fail = lambda path, method, count: "hang"
    began = time.monotonic()
    for i in range(len(source)):
        with pytest.raises(OSError, match=r"no answer in time, 3 times|did not answer"):
            source.content(i)
    asked = sum(server.requests.values())
    assert time.monotonic() - began < 60, "three tries for the first; then the host is not asked any more"
    server.fail = lambda path, method, count: None
    assert sum(server.requests.values()) == asked
    remote._resting.clear()
    assert source.content(0)


@pytest.mark.slow
def test_a_shard_that_comes_too_slowly_is_asked_for_again_and_given_up(
    server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes never stop coming, so that no pause between two of them would be too long."""
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "0")
    source = open_source(f"{server.address}/train/{{000..004}}.tar", labels=False).train.source
    monkeypatch.setattr(remote, "STALL", 1.5)
    before = server.requests["GET", "train/000.tar"]
    server.fail = lambda path, method, count: "slow" if count == before + 1 else None
    assert source.content(0), "the second time it comes"
    assert server.requests["GET", "train/000.tar"] == before + 2
    server.fail = lambda path, method, count: "slow"
    with pytest.raises(OSError, match="no answer in time, 3 times"):
        source.content(0)


def test_without_the_server_a_set_opens_from_its_index_and_its_copies(photos: Path, shards: Path) -> None:
    served = ShardServer(shards)
    train = f"{served.address}/train/{{000..004}}.tar"
    before = open_source(train).train
    served.close()
    remote._resting.clear()
    after = open_source(train).train
    remote._resting.clear()
    assert after.fingerprint == before.fingerprint == open_source(photos / "train").train.fingerprint
    assert after.classes == ("cat", "dog")


def test_a_server_that_gives_no_parts_is_told_of_in_one_line(
    server: ShardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "0")
    source = open_source(f"{server.address}/train/{{000..004}}.tar").train.source
    server.fail = lambda path, method, count: "whole"
    with pytest.raises(OSError, match="gives whole files only"):
        source.content(0)


def test_the_cache_of_shards_keeps_to_its_bound_and_other_sets_make_way(
    server: ShardServer, own_cache: Path, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [path.stat().st_size for path in sorted((shards / "train").glob("*.tar"))]
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", str(sum(sizes[:2]) + 100))
    open_source(f"{server.address}/train/{{000..004}}.tar")

    def kept() -> int:
        return sum(path.stat().st_size for path in own_cache.rglob("*.copy"))

    assert 0 < kept() <= sum(sizes[:2]) + 100
    open_source(f"{server.address}/test/{{000..001}}.tar")
    assert 0 < kept() <= sum(sizes[:2]) + 100
    notes = {path.read_text() for path in own_cache.rglob("*.of")}
    assert f"{server.address}/test/000.tar" in notes
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "plenty")
    with pytest.raises(UserError, match="DUALTEMP_SHARD_CACHE"):
        shard_cache.budget()


def test_a_disk_that_fills_up_while_a_copy_is_written_costs_the_copy_alone(
    server: ShardServer, own_cache: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(place: str, size: int, file: BinaryIO) -> None:
        file.write(b"some of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(indexing, "download", full)
    found = open_source(f"{server.address}/train/{{000..004}}.tar")
    assert sum(map(len, found.parts().values())) == len(list((photos / "train").rglob("*.png")))
    assert not found.unreadable
    assert not list(own_cache.rglob("*.copy")) + list(own_cache.rglob("*.part"))


def test_room_for_a_copy_is_made_without_looking_at_all_of_them_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        (tmp_path / f"{i:02}.copy").write_bytes(bytes(100))
        (tmp_path / f"{i:02}.of").write_text(f"shard {i}")
        os.utime(tmp_path / f"{i:02}.copy", (i, i))
    calls: list[Path] = []
    taken = shard_cache._taken
    monkeypatch.setattr(shard_cache, "_taken", lambda folder: (calls.append(folder), taken(folder))[1])
    monkeypatch.setenv(shard_cache.VARIABLE, "2000")
    assert shard_cache._has_room(tmp_path, 450, frozenset({"shard 1"}))
    assert len(calls) == 1
    assert sorted(path.stem for path in tmp_path.glob("*.copy")) == ["01", *(f"{i:02}" for i in range(6, 20))]
    assert len(list(tmp_path.glob("*.of"))) == 15


def test_a_copy_whose_note_is_gone_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "00.copy").write_bytes(bytes(1000))
    monkeypatch.setenv(shard_cache.VARIABLE, "1500")
    assert shard_cache._has_room(tmp_path, 1000, frozenset({"shard 0"}))
    assert not list(tmp_path.iterdir())


def test_names_of_classes_that_are_read_without_an_answer_count_as_used(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_cache / "shards").mkdir(parents=True)
    monkeypatch.setattr(labels, "read_text", lambda place: "cat\ndog\n")
    assert labels._remote_text("http://x/classes.txt") == "cat\ndog\n"
    (kept,) = (own_cache / "shards").glob("*.txt")
    os.utime(kept, (0, 0))

    def no_answer(place: str) -> str:
        raise OSError("no answer")

    monkeypatch.setattr(labels, "read_text", no_answer)
    assert labels._remote_text("http://x/classes.txt") == "cat\ndog\n"
    assert kept.stat().st_mtime > time.time() - 3600


def test_a_set_that_cannot_be_reached_is_a_mistake_in_one_line(server: ShardServer) -> None:
    with pytest.raises(UserError, match=r"no image in 1 shard, the first none.tar: the shard is not there"):
        open_source(f"{server.address}/none.tar")
    with pytest.raises(UserError, match="unknown://"):
        open_source("unknown://x/y.tar")


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_killed_run_on_remote_shards_ends_with_the_bits_of_the_folder(
    commands: Commands, photos: Path, server: ShardServer, tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "0" if count == 2 else "1GB")
    # Every tenth request fails: it is asked for again, and nothing of it is seen.
    server.fail = lambda path, method, number: "close" if number % 10 == 7 else None
    check_kill(commands, photos / "train", f"{server.address}/train/{{000..004}}.tar", tmp_path, count)


def test_parquet_is_read_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    images = [bytes([i]) * 3000 for i in range(40)]
    (tmp_path / "served").mkdir()
    pq.write_table(pa.table({"image": images}), tmp_path / "served" / "x.parquet", row_group_size=7)
    from dualtemp.data.shards.indexing import indexed
    from dualtemp.data.shards.locations import find_shards
    from dualtemp.data.shards.shard_images import ShardImages

    served = ShardServer(tmp_path / "served")
    try:
        for room in ("0", "1GB"):
            monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / f"cache-{room}"))
            monkeypatch.setenv("DUALTEMP_SHARD_CACHE", room)
            shard_cache.find_copy.cache_clear()
            index = indexed(find_shards(f"{served.address}/x.parquet"))
            source = ShardImages(index, torch.arange(40).numpy(), ("",), "x")
            source.read_ahead([3, 30, 17])
            assert [source.content(i) for i in (3, 30, 17, 0, 39)] == [images[i] for i in (3, 30, 17, 0, 39)]
            assert len(list((tmp_path / f"cache-{room}").rglob("*.images"))) == (room != "0")
    finally:
        served.close()
