import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dualtemp.whole_file import whole_file


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
        "import sys, time; from pathlib import Path; from dualtemp.whole_file import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as file:\n"
        "    file.write(b'half'); file.flush(); print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert path.read_bytes() == b"old"
