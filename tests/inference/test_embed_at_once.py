import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_processes import Command, Commands

from dualtemp.training.folder_lock import held, locked

BUSY = "is being written by another process"


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    (tmp_path / "logs").mkdir()
    found = Commands(tmp_path / "logs")
    yield found
    found.close()


def write_time(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def test_several_embeds_at_once_write_what_one_writes(digits_run: Path, tmp_path: Path, commands: Commands) -> None:
    words = ("embed", digits_run, "--part", "test", "--batch", "3", "--device", "cpu", "--out")
    alone, out = tmp_path / "alone" / "e.npz", tmp_path / "together" / "e.npz"
    assert commands.run(*words, alone).code == 0
    expected = np.load(alone)
    # One embeds and two wait. Whenever the file is written, a waiting one takes over in the same moment as a new one
    # begins: that one must not take the first one's lock for free.
    running: list[Command] = [commands.start(*words, out) for _ in range(3)]
    started, seen, deadline = len(running), 0, time.monotonic() + 60
    while any(command.poll() is None for command in running):
        assert time.monotonic() < deadline
        if write_time(out) != seen:
            seen = write_time(out)
            if started < 5:
                running += [commands.start(*words, out) for _ in range(2)]
                started += 2
            found = np.load(out)
            assert found["names"].tolist() == expected["names"].tolist()
            np.testing.assert_array_equal(found["features"], expected["features"])
        time.sleep(0.005)
    for command in running:
        ended = command.wait()
        assert ended.code == 0 or (ended.code == 2 and f"{out} {BUSY}" in ended.err and ended.err.count("\n") == 1)
    assert sum(command.code == 0 for command in running) >= 2
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
