"""Runs whose weights are kept per image: killed, resumed, looked at, on other numbers of processes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_processes import OFTEN, PATIENCE, Commands, halting, kill_where_it_halts
from run_contents import different, everything

from dualtemp.analysis.trained_run import open_trained_run
from dualtemp.config import settings
from dualtemp.report.run_page import write_run_page
from dualtemp.runs import checkpoint
from dualtemp.runs.folder import RunFolder
from dualtemp.training.launch import ExecutionOptions
from dualtemp.training.start import start

WORDS = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "32", "--subset", "160", "--epochs", "3")
QUIET = ExecutionOptions(device="cpu", threads=1, quiet=True)


def memory_of(run: Path, name: str = "log_u") -> torch.Tensor:
    state = checkpoint.load(checkpoint.checkpoints(run / "checkpoints")[-1]).method
    return state[f"anchors.memories.0.{name}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("--method", "simco", "--weight", "memory"),
        pytest.param(
            (
                *("--method", "simmoco", "--weight", "per_image", "--symmetric"),
                *("--temperature-schedule", "cosine", "--tau-alpha-end", "0.3"),
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["memory", "per_image"],
)
def test_a_run_that_is_killed_goes_on_with_what_it_remembered(
    words: tuple[str, ...], commands: Commands, tmp_path: Path, run_once: Any
) -> None:
    whole, path = run_once(*WORDS, *words), tmp_path / "run"
    at_the_eighth = halting(".step-*.part", 8)
    kill_where_it_halts(commands.start("train", *WORDS, *words, *OFTEN, "--out", path, first=at_the_eighth))
    ended = commands.run("resume", path)
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(whole)) == []
    assert memory_of(path).shape == (2 if "simco" in words else 1, 160)
    assert memory_of(path).isfinite().all()
    assert (memory_of(path) > -1000).all()  # every image was seen


def test_a_run_with_a_memory_can_be_looked_at_also_with_other_images(tmp_path: Path) -> None:
    chosen = {"data": "digits", "backbone": "resnet_mini", "batch": 32, "subset": 96, "epochs": 1, "weight": "memory"}
    start(settings(chosen), tmp_path / "run", QUIET)
    for data in (None, "digits"):
        run = open_trained_run(tmp_path / "run", data=data)
        assert torch.equal(run.method.state_dict()["anchors.memories.0.log_u"], memory_of(tmp_path / "run"))
        assert run.temperatures == (0.1, 0.1)  # tau_beta has no part in it


@pytest.mark.parametrize("weight", ["equal", "memory"])
def test_the_page_of_a_run_reads_its_weights_for_what_they_are(weight: str, tmp_path: Path) -> None:
    chosen = {"data": "digits", "backbone": "resnet_mini", "batch": 32, "subset": 96, "epochs": 2, "weight": weight}
    last = start(settings(chosen), tmp_path / "run", QUIET)
    assert last["W_mean"] == pytest.approx(1.0, abs=0.4)
    page = write_run_page(tmp_path / "run").read_text()
    assert "tau_beta is too small" not in page
    assert "larger tau_beta" not in page
    if weight == "equal":
        assert (last["W_mean"], last["W_spread"]) == (1.0, 0.0)


@pytest.mark.slow
def test_two_processes_keep_one_memory(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    words = [*WORDS, "--weight", "memory", "--device", "cpu", "--no-page", "--quiet", "--out", str(path)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "dualtemp", "train", *words],
            env={**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [each.wait(timeout=PATIENCE) for each in started] == [0, 0]
    assert (memory_of(path) > -1000).all()
    assert json.loads(RunFolder(path).metrics.read_text().splitlines()[-1])["epoch"] == 3
