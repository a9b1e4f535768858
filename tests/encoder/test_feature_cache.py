import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_photos import draw_photos
from packed_shards import write_shards
from shard_server import ShardServer

from dualtemp.cli import main
from dualtemp.data.loading import decode, optional_readers
from dualtemp.data.shards import remote
from dualtemp.encoder import feature_cache
from dualtemp.encoder.near_duplicates import near_duplicates
from dualtemp.encoder.search import Found, search

HOW: dict[str, Any] = {"workers": 0, "device": "cpu", "batch": 4}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label, first in (("cat", 0), ("dog", 100)):
        draw_photos(tmp_path / "some" / label, 6, first)
    return tmp_path / "some"


def files(cache: Path) -> list[Path]:
    return sorted(cache.iterdir(), key=lambda file: file.stat().st_mtime_ns) if cache.exists() else []


def searched(run: Path, folder: Path, **words: Any) -> tuple[Found, list[int], list[str]]:
    """What was found, after how many images it was told of progress (none if none was computed), and notes."""
    told: list[int] = []
    notes: list[str] = []
    photo = sorted(folder.rglob("*.png"))[3]
    found = search(
        run, [photo], data=folder, progress=lambda done, _: told.append(done), note=notes.append, **HOW | words
    )
    return found, told, notes


def test_a_second_search_computes_nothing_and_finds_the_same(photos_run: Path, folder: Path, cache: Path) -> None:
    (folder / "cat" / "002.png").write_bytes(b"broken")
    alone, told, notes = searched(photos_run, folder, cache=False)
    assert (told, notes, files(cache)) == ([4, 8, 12], [], [])
    first, told, notes = searched(photos_run, folder)
    assert (told, notes) == ([4, 8, 12], [])
    (file,) = files(cache)
    again, told, notes = searched(photos_run, folder)
    assert told == []
    assert notes == [f"12 of 12 images are done: taken from {cache}; --no-cache computes them anew"]
    assert alone.near == first.near == again.near
    assert list(again.unreadable) == list(alone.unreadable) == ["cat/002.png"]
    assert files(cache) == [file]
    # near-duplicates looks at the same features, but not if they are those of mirror images too.
    near_duplicates(photos_run, data=folder, **HOW)
    assert files(cache) == [file]
    mirrored = [near_duplicates(photos_run, data=folder, mirrored=True, threshold=0, **HOW) for _ in range(2)]
    assert mirrored[0].pairs == mirrored[1].pairs
    assert len(files(cache)) == 2


@pytest.mark.parametrize(
    "change",
    ["content", "content, time and length kept", "name", "more", "weights", "normalisation", "resize", "batch"],
)
def test_what_decides_the_features_decides_whether_they_are_taken(
    run_copy: Path, folder: Path, cache: Path, change: str
) -> None:
    words: dict[str, Any] = {}
    searched(run_copy, folder)
    photo, other = folder / "cat" / "001.png", folder / "dog" / "101.png"
    if change == "content":
        shutil.copy(other, photo)
    elif change.startswith("content,"):
        before = photo.stat()
        pixels = bytearray(photo.read_bytes())
        pixels[-20] ^= 1
        photo.write_bytes(pixels)
        os.utime(photo, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (photo.stat().st_size, photo.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    elif change == "name":
        photo.rename(photo.with_name("renamed.png"))
    elif change == "more":
        draw_photos(folder / "cat", 1, first=50)
    elif change == "weights":
        content = bytearray((run_copy / "backbone.safetensors").read_bytes())
        content[-1] ^= 1  # the sign of a weight, or an exponent
        (run_copy / "backbone.safetensors").write_bytes(content)
    elif change == "normalisation":
        environment = json.loads((run_copy / "environment.json").read_text())
        environment["images"]["mean"] = [0.1, 0.2, 0.3]
        (run_copy / "environment.json").write_text(json.dumps(environment))
    elif change == "resize":
        environment = json.loads((run_copy / "environment.json").read_text())
        environment["images"] |= {"interpolation": "bilinear", "crop": 0.5}
        (run_copy / "environment.json").write_text(json.dumps(environment))
    else:
        words["batch"] = 5
    found, told, _ = searched(run_copy, folder, **words)
    assert len(told) == -(-found.among // words.get("batch", 4))
    assert found.near == searched(run_copy, folder, cache=False, **words)[0].near
    assert len(files(cache)) == 2


def test_a_file_whose_reader_is_installed_later_is_found(
    photos_run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tifffile = pytest.importorskip("tifffile")
    values = np.random.default_rng(0).random((50, 40, 3), np.float32)
    tifffile.imwrite(folder / "cat" / "000.tif", values, photometric="rgb")
    with monkeypatch.context() as without:
        for module in (optional_readers, feature_cache):
            without.setattr(module, "has_reader", lambda package: False, raising=False)
        assert list(searched(photos_run, folder)[0].unreadable) == ["cat/000.tif"]
    found = searched(photos_run, folder)[0]
    assert (found.unreadable, found.among) == ({}, 13)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_file_that_a_failing_disk_did_not_give_is_tried_again_and_a_damaged_one_is_not(
    photos_run: Path, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    (folder / "cat" / "001.png").write_bytes(b"broken")
    real, tried, failing = decode.open_image, [], {"cat/005.png"}

    def open_image(encoded: decode.Encoded, deep: bool = False) -> Any:
        assert isinstance(encoded, Path)
        name = encoded.relative_to(folder).as_posix()
        tried.append(name)
        if name in failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(encoded))
        return real(encoded, deep)

    monkeypatch.setattr(decode, "open_image", open_image)
    for computed in ([4, 8, 12], []):  # while it fails, what is there is taken
        tried.clear()
        found, told, _ = searched(photos_run, folder, workers=workers)
        assert told == computed
        assert found.unreadable == {
            "cat/001.png": "not an image that Pillow can read",
            "cat/005.png": "Input/output error",
        }
    # The photo itself is looked at too; of the set, the one file alone that may have come back.
    assert set(tried) == {"cat/003.png", "cat/005.png"}
    failing.clear()
    found, told, notes = searched(photos_run, folder, workers=workers)
    assert told == [8, 12], "the batch before it stays"
    assert notes == [f"4 of 12 images are done: taken from {cache}; --no-cache computes them anew"]
    assert list(found.unreadable) == ["cat/001.png"]
    assert found.near == searched(photos_run, folder, cache=False)[0].near
    found, told, _ = searched(photos_run, folder, workers=workers)
    assert (told, list(found.unreadable)) == ([], ["cat/001.png"])


def test_images_of_a_server_that_was_busy_are_there_the_next_time(
    photos_run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("DUALTEMP_SHARD_CACHE", "0")
    monkeypatch.setattr(remote, "PAUSES", (0.01, 0.02))
    write_shards(folder, tmp_path / "shards", each=3)  # the second one's first image is in the first batch
    server = ShardServer(tmp_path / "shards")
    try:
        words: dict[str, Any] = {"data": f"{server.address}/{{000..003}}.tar", **HOW}
        photo = folder / "cat" / "002.png"
        everything = search(photos_run, [photo], cache=False, **words)
        server.fail = lambda path, method, count: 503 if path == "001.tar" and method == "GET" else None
        assert "cat/003.png" in search(photos_run, [photo], **words).unreadable
        server.fail = lambda path, method, count: None
        remote._resting.clear()
        found = search(photos_run, [photo], **words)
        assert (found.unreadable, found.near) == ({}, everything.near)
    finally:
        server.close()
        remote._resting.clear()


@pytest.mark.parametrize("damage", ["cut", "a bit", "head", "empty"])
def test_damaged_features_are_computed_anew(photos_run: Path, folder: Path, cache: Path, damage: str) -> None:
    expected, _, _ = searched(photos_run, folder)
    (file,) = files(cache)
    whole = file.read_bytes()
    content = bytearray(whole)
    if damage == "a bit":
        content[len(content) // 2] ^= 1
    elif damage == "head":
        content[10] ^= 1
    file.write_bytes(content[: {"cut": len(content) - 5, "empty": 0}.get(damage, len(content))])
    found, told, _ = searched(photos_run, folder)
    assert told
    assert found.near == expected.near
    assert file.read_bytes() == whole
    assert searched(photos_run, folder)[1] == []


def test_labels_are_those_of_now(digits_run: Path, tmp_path: Path, cache: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), dtype=np.uint8)
    draw_photos(tmp_path / "asked", 1)
    for classes in (["a", "b"], ["c", "d"]):
        np.savez(tmp_path / "set.npz", images=pixels, labels=np.arange(6) % 2, classes=np.array(classes))
        found = search(digits_run, list((tmp_path / "asked").iterdir()), data=tmp_path / "set.npz", **HOW)
        assert {near.label for near in found.near[0]} == set(classes)
    assert len(files(cache)) == 1


def test_a_killed_search_leaves_what_it_has_computed(photos_run: Path, folder: Path, cache: Path) -> None:
    def told(done: int, _: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="8 of 12 images are done; the same command continues"):
        near_duplicates(photos_run, data=folder, progress=told, **HOW)
    _, done, notes = searched(photos_run, folder)
    assert done == [12]
    assert notes[0].startswith("8 of 12 images are done")


def test_the_least_recently_used_go_when_the_cache_is_full(
    photos_run: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / f"folder-{number}" for number in range(3)]
    for number, each in enumerate(folders):
        draw_photos(each, 5, first=10 * number)
    searched(photos_run, folders[0])
    (file,) = files(cache)
    monkeypatch.setattr(feature_cache, "LIMIT", round(2.5 * file.stat().st_size))
    searched(photos_run, folders[1])
    assert searched(photos_run, folders[0])[1] == []  # used again: the other one is older now
    searched(photos_run, folders[2])
    assert len(files(cache)) == 2
    assert sum(each.stat().st_size for each in files(cache)) <= feature_cache.LIMIT
    assert searched(photos_run, folders[0])[1] == []
    assert searched(photos_run, folders[1])[1] != []
    monkeypatch.setattr(feature_cache, "LIMIT", 100)
    before = files(cache)
    assert searched(photos_run, folders[2], batch=3)[0].among == 5  # larger than all that may be kept
    assert files(cache) == before


def test_where_nothing_can_be_kept_everything_works_and_it_is_said(
    photos_run: Path, folder: Path, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file")
    found, told, notes = searched(photos_run, folder)
    assert (found.among, told) == (12, [4, 8, 12])
    (note,) = notes
    assert note.startswith("features are not kept for the next time")


def test_the_command_takes_kept_features_unless_it_is_told_not_to(photos_run: Path, folder: Path, capsys: Any) -> None:
    words = ["near-duplicates", str(photos_run), "--data", str(folder), "--workers", "0", "--json"]
    told = []
    for extra in ([], [], ["--no-cache"]):
        assert main([*words, *extra]) == 0
        told.append(capsys.readouterr())
    assert told[0].out == told[1].out == told[2].out
    assert ["taken from" in each.err for each in told] == [False, True, False]
