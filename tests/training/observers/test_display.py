"""What a run shows: plain lines in a file, a live line in a terminal, nothing when quiet."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_processes import PATIENCE, Commands

from dualtemp.config import settings
from dualtemp.quantities import duration
from dualtemp.runs.folder import RunFolder
from dualtemp.training.observers.display import Display, summary

RUN = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "256", "--epochs", "3")
FIGURES = r"loss -?\d+\.\d{3}  probe \d+\.\d\d %  kNN \d+\.\d\d %  spread \d\.\d\d  entropy of r_\+ \d\.\d{3}"


def test_a_file_gets_one_plain_line_an_epoch(commands: Commands, tmp_path: Path) -> None:
    ended = commands.run("train", *RUN, "--out", tmp_path / "run")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert len(lines) == 3
    for number, line in enumerate(lines, 1):
        assert re.fullmatch(rf"epoch {number}/3  {FIGURES}(  \d+ s left)?", line), line
    assert ended.err == ""


def test_quiet_says_nothing(commands: Commands, tmp_path: Path) -> None:
    ended = commands.run("train", *RUN, "--quiet", "--out", tmp_path / "run")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


@pytest.mark.slow
def test_a_terminal_gets_a_live_line_that_is_gone_at_the_end(tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    # 16 steps an epoch: the line is drawn ten times a second, so that some drawing falls between two measurements.
    words = [sys.executable, "-m", "dualtemp", "train", *RUN, "--epochs", "12", "--batch", "16", "--no-page"]
    words += ["--out", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "140"}
    process = subprocess.Popen(words, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown, deadline = b"", time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            if select.select([controller], [], [], 0.5)[0]:
                try:
                    shown += os.read(controller, 65536)
                except OSError:  # the other side is closed
                    break
        assert process.wait(timeout=PATIENCE) == 0, shown
    finally:
        process.kill()
        process.wait()
        os.close(controller)
    text = shown.decode()
    assert re.search(r"epoch \d+\.\d\d/12", text), "a live position"
    assert re.search(r"loss \d+\.\d{3}  \d+ (s|min) left", text), "time left"
    assert re.search(r"measuring, \d+ of [\d,]+", text), "what is going on between epochs"
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    for number in range(1, 13):
        assert len(re.findall(rf"epoch +{number}/12  loss", plain)) == 1
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor is there again"


def test_notes_go_to_standard_error_even_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    Display(quiet=True).note("one thing")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "dualtemp: one thing\n")


def test_a_collapse_and_missing_figures_are_told() -> None:
    assert summary({"loss": 1.0}) == "loss 1.000"
    assert "COLLAPSED" in summary({"loss": 1.0, "spread": 0.001, "collapsed": True})


FULL = {"epoch": 7, "loss": 3.4567, "probe_top1": 45.678, "knn_top1": 43.21, "spread": 0.87, "entropy": 4.0123}


def test_a_narrow_terminal_gets_fewer_figures_and_the_first_ones_always() -> None:
    whole = summary(FULL)
    for width in range(200):
        line = summary(FULL, width)
        assert whole.startswith(line)
        assert line.startswith("loss 3.457  probe 45.68 %")
        assert len(line) <= max(width, len("loss 3.457  probe 45.68 %"))
    assert summary(FULL, len(whole)) == whole
    assert summary(FULL, len(whole) - 1) == "loss 3.457  probe 45.68 %  kNN 43.21 %  spread 0.87"
    assert "COLLAPSED" in summary({**FULL, "collapsed": True}, 40)


def test_a_line_of_an_epoch_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    display = Display(live=True)
    display.begin(tmp_path, settings({"data": "digits", "epochs": 200}))
    display.step(6, 1, 2, 1.0)
    display.epoch({**FULL, "epoch": 107})
    display.close()
    (line,) = (text for text in capsys.readouterr().out.splitlines() if "epoch 107/200" in text)
    assert re.search(r"epoch 107/200  loss 3\.457  probe 45\.68 %  kNN 43\.21 %  spread 0\.87 *$", line), line


@pytest.mark.slow
def test_a_run_goes_on_though_nobody_reads_its_output(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "dualtemp", "train", *RUN, "--no-page", "--out", str(tmp_path / "run")]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        words,
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=PATIENCE,
        text=True,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [line["epoch"] for line in RunFolder(tmp_path / "run").history()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("seconds", "told"), [(3, "3 s"), (89, "89 s"), (120, "2 min"), (4800, "80 min"), (9000, "2 h 30 min")]
)
def test_durations_are_short(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_work_between_steps_is_told_to_a_file_after_a_minute_of_silence(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(live=False)
    display.working("measuring", 64, 2000)
    assert capsys.readouterr().out == ""
    display.said -= 61
    display.working("measuring", 128, 2000)
    display.working("measuring", 192, 2000)
    assert capsys.readouterr().out == "measuring, 128 of 2,000\n"
    quiet = Display(quiet=True, live=True)
    quiet.working("measuring", 1, 2)
    assert quiet.progress is None
