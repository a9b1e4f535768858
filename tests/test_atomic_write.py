import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_processes import PATIENCE

from dualtemp.atomic_write import whole_file, write_output


def test_a_complete_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with whole_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def write_half() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_half()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_a_process_that_is_killed_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    code = (
        "import sys, time; from pathlib import Path; from dualtemp.atomic_write import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'); file.flush(); print('ready', flush=True); time.sleep(300)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert path.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    with whole_file(path) as file:
        file.write(b"new")
    assert os.listdir(tmp_path) == ["x"], "what was left is cleared away by the next"


def test_many_that_write_one_file_leave_one_whole_file_and_take_nothing_from_each_other(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from dualtemp.atomic_write import whole_file\n"
        "for _ in range(50):\n"
        "    with whole_file(Path(sys.argv[1])) as file: file.write(sys.argv[2].encode() * 10_000)"
    )
    words = [[sys.executable, "-c", code, str(tmp_path / "x"), letter] for letter in "abcd"]
    processes = [subprocess.Popen(each, stderr=subprocess.PIPE, text=True) for each in words]
    assert [process.communicate(timeout=PATIENCE)[1] for process in processes] == [""] * 4
    assert os.listdir(tmp_path) == ["x"]
    assert (tmp_path / "x").read_text() in [letter * 10_000 for letter in "abcd"]


def test_a_name_of_any_length_can_be_written(tmp_path: Path) -> None:
    for name in ("n" * 255, "\N{SMILING FACE WITH SUNGLASSES}" * 63):
        with whole_file(tmp_path / name) as file:
            file.write(b"new")
    assert len(os.listdir(tmp_path)) == 2


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="another user is needed, whom root can become")
def test_a_folder_that_may_be_written_to_but_not_listed_takes_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    folder.chmod(0o333)
    code = (
        "import os; from pathlib import Path; from dualtemp.atomic_write import write_output\n"
        "os.seteuid(65534)\n"  # nobody, who is in the folder already and needs no way to it
        "write_output(Path('x'), 'whole')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, timeout=PATIENCE)
    assert (folder / "x").read_text() == "whole"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE) as reader:
        write_output(tmp_path / "pipe", "all of it")
        if not (still := (tmp_path / "pipe").is_fifo()):
            reader.kill()  # which would wait for ever
        assert reader.communicate(timeout=PATIENCE)[0] == b"all of it"
    assert still
    assert os.listdir(tmp_path) == ["pipe"]
