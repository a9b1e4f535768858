import json
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from command_processes import PATIENCE, Command, Commands
from drawn_photos import draw_photos

from dualtemp.file_lock import held, locked

BUSY = "is being written by another process"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw_photos(tmp_path / "some", 12)
    return tmp_path / "some"


def wrote(commands: list[Command]) -> int:
    """How many commands have ended well."""
    return sum(command.code == 0 for command in commands)


def write_time(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


@pytest.mark.slow
def test_several_embeds_at_once_write_what_one_writes(digits_run: Path, tmp_path: Path, commands: Commands) -> None:
    words = ("embed", digits_run, "--part", "test", "--batch", "8", "--device", "cpu", "--out")
    alone, out = tmp_path / "alone" / "e.npz", tmp_path / "together" / "e.npz"
    assert commands.run(*words, alone).code == 0
    expected = np.load(alone)
    # One embeds and two wait. Whenever the file is written, a waiting one takes over in the same moment as a new one
    # begins: that one must not take the first one's lock for free.
    running: list[Command] = [commands.start(*words, out) for _ in range(3)]
    seen, deadline = 0, time.monotonic() + PATIENCE
    # On a busy machine one embeds for longer than the others wait: then these give up, and later ones write.
    while any(command.poll() is None for command in running) or wrote(running) < 2:
        assert time.monotonic() < deadline
        written = write_time(out)
        if all(command.poll() is not None for command in running) or (written != seen and len(running) < 5):
            running += [commands.start(*words, out) for _ in range(2)]
        if written != seen:
            seen = written
            found = np.load(out)
            assert found["names"].tolist() == expected["names"].tolist()
            np.testing.assert_array_equal(found["features"], expected["features"])
        time.sleep(0.005)
    for command in running:
        ended = command.wait()
        assert ended.code == 0 or (ended.code == 2 and f"{out} {BUSY}" in ended.err and ended.err.count("\n") == 1)
    assert out.read_bytes() == alone.read_bytes()
    assert list(out.parent.iterdir()) == [out]


def test_who_waits_for_a_lock_file_that_its_holder_removes_takes_the_new_one(tmp_path: Path) -> None:
    path, waits, found = tmp_path / "lock", threading.Event(), []

    def wait_for_it() -> None:
        waits.set()
        with locked(path, remove=True):
            found.append(path.exists() and held(path))

    with locked(path, remove=True):
        other = threading.Thread(target=wait_for_it)
        other.start()
        waits.wait()
        time.sleep(0.15)  # until it has opened the file and was refused
    other.join()
    assert found == [True]
    assert not path.exists()


@pytest.mark.slow
def test_several_searches_at_once_find_what_one_finds(
    photos_run: Path, folder: Path, tmp_path: Path, commands: Commands
) -> None:
    words = ["search", photos_run, folder / "003.png", "--data", folder, "--batch", "1", "--workers", "0", "--json"]
    cache = {"DUALTEMP_DATA": str(tmp_path / "cache")}
    alone = commands.run(*words, "--no-cache", env=cache)
    assert not (tmp_path / "cache").exists()
    together = [commands.start(*words, env=cache) for _ in range(4)]
    together[1].send(signal.SIGKILL)
    ended = [command.wait() for number, command in enumerate(together) if number != 1]
    ended.append(commands.run(*words, env=cache))
    assert "12 of 12 images are done: taken from" in ended[-1].err
    for each in ended:
        assert each.code == 0
        assert json.loads(each.out) == json.loads(alone.out)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of files")
def test_a_disk_that_fills_up_costs_nothing_but_the_cache(
    photos_run: Path, folder: Path, tmp_path: Path, commands: Commands
) -> None:
    words = ["search", photos_run, folder / "003.png", "--data", folder, "--batch", "2", "--workers", "0", "--json"]
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))"
    ended = commands.run(*words, env={"DUALTEMP_DATA": str(tmp_path / "cache")}, first=small)
    assert ended.code == 0
    assert json.loads(ended.out)["among"] == 12
    assert "features are not kept for the next time (File too large)" in ended.err
    assert not (tmp_path / "cache").exists()
