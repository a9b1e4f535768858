"""Several processes make the same run as one; what ends one of them ends all, and nothing is lost."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from command_processes import (
    OFTEN,
    PATIENCE,
    Command,
    Commands,
    Ended,
    halted,
    halting,
    is_stopped,
    kill_where_it_halts,
    signal_where_it_halts,
    together,
    until,
)
from drawn_photos import draw_photos
from run_contents import different, everything

# A transformer has no batch norm, whose statistics would be those of a process.
DIGITS = ("--data", "digits", "--batch", "64", "--subset", "256", "--epochs", "2", "--warmup-epochs", "0")
VIT = (*DIGITS, "--backbone", "test_vit", "--image-size", "32")
MINI = (*DIGITS[:-4], "--epochs", "6", "--backbone", "resnet_mini")
METHODS = {
    "simco": ("--method", "simco"),
    "moco": ("--method", "moco", "--dictionary-size", "100", "--symmetric"),
    "simmoco": ("--method", "simmoco", "--optimizer", "adamw", "--lr", "0.001", "--clip-gradient", "0.5"),
    "supervised": ("--method", "supervised", "--chunk", "16"),
}


def wait_for(command: Command, path: Path, pattern: str) -> None:
    assert until(command, lambda: list(path.glob(pattern))), command.err.read_text()


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[pytest.mark.slow] * (name != "simco")) for name in METHODS]
)
def test_two_processes_make_the_same_run_as_one(method: str, commands: Commands, run_once: Any, tmp_path: Path) -> None:
    words = (*VIT, *METHODS[method])
    path = tmp_path / "run"
    first, second = (process.wait() for process in together(commands, "train", *words, "--out", path))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.out == second.err == "", "rank 0 alone speaks"

    one, two = everything(run_once(*words)), everything(path)
    assert one.keys() == two.keys()
    for name, value in one.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            torch.testing.assert_close(two[name], value, rtol=1e-5, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")
    for alone, shared in zip(one["metrics"], two["metrics"], strict=True):
        assert alone.keys() == shared.keys()
        assert shared["loss"] == pytest.approx(alone["loss"], rel=1e-6)
        for name in ("entropy", "W_mean", "W_spread", "hardest_tenth"):
            assert shared[name] == pytest.approx(alone[name], rel=1e-6, abs=1e-7), name
        for name in ("alignment", "uniformity", "effective_rank"):
            assert shared[name] == pytest.approx(alone[name], rel=1e-4), name
        assert shared["knn_top1"] == pytest.approx(alone["knn_top1"], abs=1)


def test_files_that_any_process_could_not_read_are_listed_and_stay_so_when_a_run_is_resumed(
    commands: Commands, tmp_path: Path
) -> None:
    for first, (place, count) in enumerate({"train/a": 4, "train/b": 4, "test/a": 2, "test/b": 2}.items()):
        draw_photos(tmp_path / "photos" / place, count, first=10 * first)
    broken = draw_photos(tmp_path / "photos" / "unlabelled", 16, first=50)[::2]
    for path in broken:  # which are learned from, and not measured with
        path.write_bytes(b"broken")
    words = ("--data", tmp_path / "photos", "--image-size", "16", "--batch", "8", "--epochs", "1", "--init", "none")
    for count in (1, 2):
        out = ("--backbone", "resnet_mini", "--workers", "0", "--quiet", "--out", tmp_path / f"{count}")
        ended = [process.wait() for process in together(commands, "train", *words, *out, count=count)]
        assert [each.code for each in ended] == [0] * count, ended
    listed = (tmp_path / "1" / "unreadable.txt").read_text()
    assert [line.split(": ")[0] for line in listed.splitlines()] == [f"unlabelled/{path.name}" for path in broken]
    assert (tmp_path / "2" / "unreadable.txt").read_text() == listed
    draw_photos(tmp_path / "photos" / "unlabelled", 16, first=50)
    (tmp_path / "photos/unlabelled/051.png").write_bytes(b"broken since")
    resumed = commands.run("resume", tmp_path / "1", "--epochs", "2", "--workers", "0")
    assert resumed.code == 0, resumed.err
    assert set((tmp_path / "1" / "unreadable.txt").read_text().splitlines()) > set(listed.splitlines())
    assert "9 files could not be read" in resumed.err


@pytest.mark.slow
def test_two_processes_learn_from_a_folder_and_say_how_long_it_will_take(commands: Commands, tmp_path: Path) -> None:
    for number in range(2):
        draw_photos(tmp_path / "photos" / f"class{number}", 12, first=12 * number)
    words = ("--data", tmp_path / "photos", "--image-size", "16", "--batch", "8", "--epochs", "1")
    out = ("--backbone", "resnet_mini", "--workers", "0", "--chunk", "2", "--out", tmp_path / "run")
    first, second = (process.wait() for process in together(commands, "train", *words, *out))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "Expected time: about" in " ".join(first.out.split())
    assert second.out == second.err == ""


def resume_with(commands: Commands, path: Path, words: tuple[str, ...], counts: tuple[int, ...]) -> Ended:
    """Train with the first number of processes, kill, resume with the next one, ...; returns how rank 0 ended."""
    for stage, count in enumerate(counts[:-1]):
        command = ("resume", path) if stage else ("train", *words, "--out", path)
        kill_where_it_halts(*together(commands, *command, *OFTEN, count=count, first=halting(".step-*.part", 2)))
    ended = [process.wait() for process in together(commands, "resume", path, count=counts[-1])]
    assert [each.code for each in ended] == [0] * len(ended), "".join(each.err for each in ended)
    return ended[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "counts"),
    [
        pytest.param(("supervised", "--chunk", "40"), (1, 2), id="chunks for one process, none for two"),
        pytest.param(("moco",), (2, 1), id="a dictionary"),
        pytest.param(("simco",), (4, 1, 2), id="the negatives of a batch"),
    ],
)
def test_a_run_goes_on_with_another_number_of_processes(
    commands: Commands, run_once: Any, tmp_path: Path, method: tuple[str, ...], counts: tuple[int, ...]
) -> None:
    path, words = tmp_path / "run", (*VIT, *METHODS[method[0]], *method[1:])
    ended = resume_with(commands, path, words, counts)
    assert "another run" not in ended.out + ended.err
    one, found = everything(run_once(*words)), everything(path)
    for name, value in one.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            torch.testing.assert_close(
                found[name], value, rtol=1e-5, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}"
            )


@pytest.mark.slow
def test_with_batch_norm_it_is_another_run_and_that_is_told(commands: Commands, run_once: Any, tmp_path: Path) -> None:
    path, words = tmp_path / "run", (*DIGITS, "--backbone", "resnet_mini")
    ended = resume_with(commands, path, words, (1, 2))
    said = " ".join((ended.out + ended.err).split())
    assert "processes: 1 at first, 2 now" in said
    assert "another run" in said
    alone, shared = (everything(each)["metrics"] for each in (run_once(*words), path))
    assert [each["loss"] for each in shared] != pytest.approx([each["loss"] for each in alone], rel=1e-5)
    again = commands.run("resume", path, "--epochs", "3")
    assert "another run" not in again.out + again.err, "as many as at first"


def test_a_restart_goes_on_with_no_run_but_its_own(commands: Commands, run_once: Any) -> None:
    whole = run_once(*MINI)
    environment = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_RUN_ID": "another"}
    ended = commands.run("train", *MINI, "--out", whole, env=environment)
    assert ended.code == 2
    assert "holds a run already" in ended.err


@pytest.mark.slow
def test_a_requeued_job_goes_on_with_its_own_run_and_sigusr1_asks_slurm_for_that(
    commands: Commands, run_once: Any, tmp_path: Path
) -> None:
    path, asked = tmp_path / "run", tmp_path / "asked"
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')  # Slurm itself: tests/cluster
    (tmp_path / "scontrol").chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    words = ("train", *MINI, *OFTEN, "--out", path)
    running = commands.start(*words, env=job, first=halting(".step-*.part", 2, cut=False))
    signal_where_it_halts(running, signal.SIGUSR1)
    ended = running.wait()
    assert ended.code == 130
    assert "job 7 is requeued" in ended.err
    assert asked.read_text() == "requeue 7\n"

    ended = commands.run(*words, env={**job, "SLURM_JOB_ID": "8", "SLURM_RESTART_COUNT": "1"})
    assert ended.code == 2, "another job's"
    ended = commands.run(*words, env={**job, "SLURM_RESTART_COUNT": "1"})
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(run_once(*MINI))) == []


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_other_one_with_a_line(victim: int, commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "run"
    processes = together(commands, "train", *MINI, "--epochs", "500", "--out", path)
    wait_for(processes[0], path, "checkpoints/step-*.ckpt")
    processes[victim].send(signal.SIGKILL)
    killed = time.monotonic()
    ended = processes[1 - victim].wait()
    assert time.monotonic() - killed < PATIENCE, "at once, and not after the two hours of the group's own patience"
    assert ended.code == 2
    assert re.fullmatch(
        r"dualtemp: another process of this run has ended.* checkpoint is step-\d+\.ckpt; .*resume .*\n", ended.err
    )


@pytest.mark.slow
def test_a_mistake_is_told_once_and_ends_all(commands: Commands, run_once: Any, tmp_path: Path) -> None:
    whole = run_once(*MINI)
    for words, said in (
        (("train", *MINI, "--out", whole), "holds a run already"),
        (("train", *MINI, "--backbone", "resnet81", "--out", tmp_path / "run"), "is unknown"),
        (("train", *MINI, "--batch", "63", "--out", tmp_path / "run"), "evenly"),
        (("train", *MINI, "--out", "/proc/run"), "cannot be made"),
        (("resume", tmp_path), "is not a run"),
    ):
        first, second = (process.wait() for process in together(commands, *words))
        assert (first.code, second.code) == (2, 2), first.err + second.err
        assert said in first.err
        assert first.err.count("\n") == 1
        assert second.err == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_two_processes_that_are_asked_to_stop_save_and_go_on_to_the_same_bits(
    commands: Commands, tmp_path: Path
) -> None:
    whole, path = tmp_path / "whole", tmp_path / "run"
    for process in together(commands, "train", *MINI, "--out", whole):
        assert process.wait().code == 0
    processes = together(commands, "train", *MINI, "--out", path, first=halting(".step-*.part", cut=False))
    assert until(processes[0], lambda: halted(processes[0])), processes[0].err.read_text()
    processes[1].send(signal.SIGTERM)  # one is enough
    processes[0].send(signal.SIGCONT)
    first, second = (process.wait() for process in processes)
    assert (first.code, second.code) == (130, 130), first.err + second.err
    assert "go on with `dualtemp resume" in first.err
    assert second.err == ""
    for process in together(commands, "resume", path):
        ended = process.wait()
        assert ended.code == 0, ended.err
    assert different(everything(path), everything(whole)) == []


# On rank 0 of the first start, the supervisor's SIGTERM also arrives the moment its handler is taken away.
RESTARTED = """
import os, signal, sys
from dualtemp.cli import main
set_handler = signal.signal
def ended_at_once(number, handler):
    before = set_handler(number, handler)
    if number == signal.SIGTERM and handler == signal.SIG_DFL: os.kill(os.getpid(), number)
    return before
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "0":
    signal.signal = ended_at_once
    exec(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_torchrun_restarts_a_run_whose_process_was_killed(tmp_path: Path) -> None:
    path, program = tmp_path / "run", tmp_path / "restarted.py"
    program.write_text(RESTARTED)
    words = (halting(".step-*.part", 2, cut=False), "train", *MINI, "--evaluate-every", "100", "--out", path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*map(str, [*torchrun, "--max-restarts", "1", program, *words])],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as launcher:
        try:
            deadline = time.monotonic() + PATIENCE
            while not (path / "checkpoints").exists() or not is_stopped(first := process_of_rank(0, launcher.pid)):
                assert launcher.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(process_of_rank(1, launcher.pid), signal.SIGKILL)
            os.kill(first, signal.SIGCONT)
            said, _ = launcher.communicate(timeout=PATIENCE)
        finally:
            launcher.kill()
    assert launcher.returncode == 0, said
    assert said.count("dualtemp: another process of this run has ended") == 1, said
    assert said.count("epoch 6/6") == 1
    assert said.count(f"The run's page is {path}/report.html") == 1
    assert "data:image/jpeg" in (path / "report.html").read_text()
    assert [line["epoch"] for line in everything(path)["metrics"]] == list(range(1, 7))


def process_of_rank(rank: int, launcher: int) -> int:
    """The process that torchrun started as that rank."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(re.search(r"PPid:\s+(\d+)", (folder / "status").read_text())[1])  # pyright: ignore
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == launcher and f"RANK={rank}".encode() in environment:
            return int(folder.name)
    raise AssertionError(f"torchrun has no rank {rank}")
