import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from dualtemp import progress_bar
from dualtemp.progress_bar import CELLS, PlainBar, image_progress


@pytest.mark.parametrize(("share", "cells"), [(0, 0), (0.5, CELLS // 2), (0.999, CELLS - 1), (1, CELLS), (1.2, CELLS)])
@pytest.mark.parametrize("color", [None, "truecolor"])
def test_what_is_done_can_be_counted_without_color(share: float, cells: int, color: Any) -> None:
    output = io.StringIO()
    console = Console(file=output, color_system=color, force_terminal=color is not None, width=80)
    progress = Progress(PlainBar(), console=console)
    progress.add_task("", total=200, completed=200 * share)  # pyright: ignore[reportArgumentType]
    console.print(progress)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue())
    assert plain.strip() == f"[{'#' * cells}{'-' * (CELLS - cells)}]"


def test_no_bar_of_another_kind_is_used() -> None:
    root = Path(progress_bar.__file__).parent
    assert [path for path in root.rglob("*.py") if "BarColumn" in path.read_text()] == []


def test_a_terminal_shows_how_many_images_are_done() -> None:
    program = """
from dualtemp.progress_bar import image_progress
with image_progress() as told:
    for done in (100, 250):
        told(done, 1000)
    told(20, 40)  # of other images
"""
    ours, theirs = pty.openpty()
    done = subprocess.Popen([sys.executable, "-c", program], stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # how Linux says that nobody writes any more
        pass
    os.close(ours)
    assert done.wait() == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert f"20 of 40 images [{'#' * (CELLS // 2)}{'-' * (CELLS // 2)}]" in plain


def test_a_log_has_a_line_now_and_then(capsys: Any, monkeypatch: Any) -> None:
    with image_progress() as told:
        assert told is not None
        told(5, 10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress_bar, "LINE_SECONDS", 0)
    with image_progress() as told:
        assert told is not None
        for done in (256, 1000, 2000):
            told(done, 2000)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["dualtemp: 256 of 2,000 images", "dualtemp: 1,000 of 2,000 images, about 0 s left"]
    with image_progress(quiet=True) as told:
        assert told is None


def test_the_time_left_of_a_second_pass_is_that_of_its_own_images(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("dualtemp.progress_bar.time.monotonic", lambda: now[0])
    with image_progress() as show:
        assert show is not None
        for _ in range(2):
            for done in (100, 200, 300):
                now[0] += 40.0
                show(done, 500)
            now[0] += 1000.0  # something else is done in between
    told = capsys.readouterr().err.splitlines()
    assert told[1].endswith("200 of 500 images, about 2 min left")
    assert told[-2:] == told[1:3]
