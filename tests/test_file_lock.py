"""One writer at a time, on file systems with locks and without; real processes, really killed."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from command_processes import PATIENCE

from dualtemp import file_lock
from dualtemp.file_lock import CLAIM, Busy, held, locked

# What a process sees of a file system without locks.
NO_LOCKS = """
import errno, fcntl
def refuse(*_): raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = refuse
"""
HOLD = """
import sys, time
from pathlib import Path
from dualtemp.file_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(300)
"""
COUNT = """
import math, sys, time
from pathlib import Path
from dualtemp.file_lock import locked
path, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(25):
    with locked(path, patience=math.inf, remove=True):
        found = int(counter.read_text())
        time.sleep(0.0005)
        counter.write_text(str(found + 1))
"""


@pytest.fixture(params=["locks", "no locks"])
def before(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a child process does first, so that it has locks or none; this process is treated the same."""
    if request.param == "locks":
        return ""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    return NO_LOCKS


def start(program: str, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *map(str, words)], stdout=subprocess.PIPE, text=True)


def test_what_another_process_holds_is_refused_until_it_is_killed(before: str, tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with start(before + HOLD, lock) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert held(lock)
        with pytest.raises(Busy, match=f"{tmp_path} is being written by another process"), locked(lock, patience=0.1):
            pass
        with pytest.raises(Busy, match="the file is being"), locked(lock, patience=0, what="the file"):
            pass
        process.kill()
        with locked(lock):  # nobody has waited for the dead process yet
            assert held(lock)
    assert not held(lock)
    assert os.listdir(tmp_path) == [".lock"]


FORK = """
import os, sys, time
from pathlib import Path
from dualtemp.file_lock import locked
with locked(Path(sys.argv[1])):
    if os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(300)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_killed_process_does_not_hold_its_lock(before: str, tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with start(before + FORK, lock) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert held(lock), "the child has let go, and its parent has not"
        process.kill()
        process.wait()
        with locked(lock, patience=0):
            os.kill(child, 0)  # it lives
        os.kill(child, signal.SIGKILL)


def test_of_many_processes_one_is_inside_at_a_time_though_each_removes_the_lock(before: str, tmp_path: Path) -> None:
    lock, counter = tmp_path / "folder" / ".lock", tmp_path / "counter"
    lock.parent.mkdir()
    counter.write_text("0")
    processes = [start(before + COUNT, lock, counter) for _ in range(4)]
    assert [process.wait(timeout=PATIENCE) for process in processes] == [0] * 4
    assert counter.read_text() == "100"
    assert os.listdir(lock.parent) == []


def test_of_many_threads_one_is_inside_at_a_time(before: str, tmp_path: Path) -> None:
    inside, most = [], []

    def work() -> None:
        for _ in range(10):
            with locked(tmp_path / ".lock", patience=60):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 40


def test_an_error_inside_gives_the_lock_back(before: str, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="inside"), locked(tmp_path / ".lock", patience=0):
            raise RuntimeError("inside")


def test_without_locks_the_claim_of_another_machine_stands_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "fcntl", None)
    claim = tmp_path / f".lock{CLAIM}node7.0123abcd.77.8d1e-99.55aa"
    claim.touch()
    with pytest.raises(Busy) as caught, locked(tmp_path / ".lock", patience=0):
        pass
    assert f"(process 77 of node7; if it has ended, remove {claim})" in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == [".lock", claim.name]
    claim.unlink()
    with locked(tmp_path / ".lock", patience=0):
        pass


def test_without_locks_another_process_that_got_the_number_of_a_dead_one_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "fcntl", None)
    with locked(tmp_path / ".lock"):
        (claim,) = tmp_path.glob(f".lock{CLAIM}*")
    *place, number, started, _ = claim.name.split(".")
    assert number == str(os.getpid())
    claim.with_name(".".join([*place, number, started + "0", "55aa"])).touch()
    assert not held(tmp_path / ".lock")
    with locked(tmp_path / ".lock", patience=0):
        pass
    assert os.listdir(tmp_path) == [".lock"]


def test_a_folder_that_is_gone_or_cannot_be_written_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path / "gone" / ".lock"):
        pass
    with pytest.raises(NotADirectoryError), locked(Path(os.devnull) / ".lock"):
        pass
