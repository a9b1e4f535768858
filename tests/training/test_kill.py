"""A run that is killed at any moment goes on to the same bits."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_processes import OFTEN, PATIENCE, Commands, halting, kill_where_it_halts, signal_where_it_halts
from PIL import Image
from run_contents import different, everything

SIMCO = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "512", "--epochs", "4")
MOCO = (*SIMCO, "--method", "moco", "--dictionary-size", "200")
EITHER = [pytest.param(SIMCO, id="simco"), pytest.param(MOCO, id="moco", marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("words", EITHER)
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(
    words: tuple[str, ...], commands: Commands, run_once: Any, tmp_path: Path
) -> None:
    whole, path, moments = run_once(*words), tmp_path / "run", random.Random(words[-1])
    # The first three kills come at most 20 ms after the second checkpoint of a process, so that a fast machine has
    # steps left of the 32; the others come when they come.
    at_the_second = halting(".step-*.part", 2, cut=False)
    command = commands.start("train", *words, *OFTEN, "--out", path, first=at_the_second)
    for kill in range(1, 13):
        if kill <= 3:
            signal_where_it_halts(command, signal.SIGCONT)
            time.sleep(moments.uniform(0, 0.02))
        else:
            time.sleep(moments.uniform(0, 0.3))
        command.send(signal.SIGKILL)
        ended = command.wait()
        if kill > 3 and ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.err
        often = OFTEN if kill % 2 or kill <= 2 else ()
        command = commands.start("resume", path, *often, first=at_the_second if kill <= 2 else "")
    else:
        ended = command.wait()
        assert ended.code == 0, ended.err
    assert different(everything(path), everything(whole)) == []
    assert not list(path.rglob("*.part"))


@pytest.mark.parametrize("words", EITHER)
def test_a_kill_while_a_checkpoint_is_written_loses_nothing(
    words: tuple[str, ...], commands: Commands, run_once: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    kill_where_it_halts(commands.start("train", *words, *OFTEN, "--out", path, first=halting(".step-*.part", 3)))
    for time_of_kill in (1, 2, 4):
        assert len(list((path / "checkpoints").glob(".*.part"))) == 1
        kill_where_it_halts(commands.start("resume", path, *OFTEN, first=halting(".step-*.part", time_of_kill)))
    command = commands.start("resume", path, *OFTEN)
    ended = command.wait()
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(run_once(*words))) == []
    assert not list(path.rglob("*.part"))


def test_a_kill_between_the_metrics_and_the_checkpoint_gives_no_line_twice(
    commands: Commands, run_once: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    # The backbone of an epoch is written after its line, and before its checkpoint.
    kill_where_it_halts(commands.start("train", *SIMCO, "--out", path, first=halting(".backbone*.part", 2)))
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 2, "st')  # a line that was cut short
    ended = commands.run("resume", path)
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(run_once(*SIMCO))) == []


@pytest.mark.slow
def test_a_run_with_a_page_that_is_killed_goes_on_to_the_same_bits_and_its_page_follows(
    commands: Any, run_once: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    page = path / "report.html"
    in_an_epoch = halting(".report.html.*.part", after=path / "metrics.jsonl")
    kill_where_it_halts(commands.with_page("train", *SIMCO, "--out", path, first=in_an_epoch))
    assert page.exists(), "of the beginning"
    ended = commands.with_page("resume", path).wait()
    assert (ended.code, ended.err) == (0, "")
    assert different(everything(path), everything(run_once(*SIMCO))) == []
    assert not list(path.rglob("*.part"))
    assert "data:image/jpeg" in page.read_text()


@pytest.mark.slow
def test_what_the_shell_starts_can_be_killed_and_resumed_too(run_once: Any, tmp_path: Path) -> None:
    path, environment = tmp_path / "run", {**os.environ, "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "dualtemp"]
    words = ("--no-page", "--quiet", "--out", path)
    with subprocess.Popen([*program, "train", *SIMCO, *OFTEN, *words], env=environment) as process:
        deadline = time.monotonic() + PATIENCE
        while not list(path.glob("checkpoints/step-*[1-7].ckpt")):  # in the middle of an epoch
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    done = subprocess.run(
        [*program, "resume", path, "--no-page"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert re.search(r"epoch 4/4 .* probe", done.stdout)
    assert different(everything(path), everything(run_once(*SIMCO))) == []


@pytest.mark.slow
def test_a_run_on_photographs_is_resumed_at_once_though_its_readers_may_still_end(
    commands: Commands, tmp_path: Path
) -> None:
    random_pixels = np.random.default_rng(0).integers(0, 255, (96, 20, 24, 3), dtype=np.uint8)
    for number, pixels in enumerate(random_pixels):
        folder = tmp_path / "photographs" / str(number % 2)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    data = ("--data", tmp_path / "photographs", "--image-size", "16", "--batch", "16", "--epochs", "4")
    words = (*data, "--backbone", "resnet_mini", "--workers", "2", *OFTEN)
    assert commands.run("train", *words, "--out", tmp_path / "whole").code == 0
    path = tmp_path / "run"
    kill_where_it_halts(commands.start("train", *words, "--out", path, first=halting(".step-*.part", 3)))
    goes_on = ("resume", path, "--workers", "2", *OFTEN)
    kill_where_it_halts(commands.start(*goes_on, first=halting(".step-*.part", 5)))
    ended = commands.run(*goes_on)
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(tmp_path / "whole")) == []
