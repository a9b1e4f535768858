from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dualtemp.cli import main
from dualtemp.commands.lookup import all_commands

COMMANDS = [command.name for command in all_commands()]
COMPUTE_NOTHING = {"clean", "runs", "paper", "doctor"}  # paper measures a step with one thread, always
WORDS = {
    "train": ["--data", "digits", "--out", "new"],
    "resume": ["run"],
    "report": ["run"],
    "explore": ["run"],
    "analyze": ["run", "entropy"],
    "evaluate": ["run"],
    "embed": ["run", "--out", "e.npz"],
    "search": ["run", "photo.png"],
    "near-duplicates": ["run"],
    "export": ["run"],
    "select": ["run"],
    "predict": ["run"],
    "judge": ["run"],
    "studio": ["run"],
    "reproduce": ["T-reverse"],
    "grid": ["grid.yaml"],
    "index": ["e.npz", "--out", "x.index"],
}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - COMPUTE_NOTHING))
def test_every_command_that_computes_takes_threads(command: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, *WORDS.get(command, []), "--threads", "0"]) == 2
    told = capsys.readouterr().err
    assert "--threads must be at least 1, got 0" in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["train", "resume", "search", "grid"])
@pytest.mark.parametrize("threads", ["100000", "3000000000"])
def test_more_threads_than_can_start_are_one_line(
    command: str, threads: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, *WORDS.get(command, []), "--threads", threads]) == 2
    assert f"--threads must be at most 1,024, got {threads}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["train", "resume", "evaluate", "embed", "judge"])
@pytest.mark.parametrize("workers", ["-1", "100000", "1" * 23])
def test_workers_that_cannot_be_are_one_line(
    command: str, workers: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, *WORDS[command], "--workers", workers]) == 2
    assert capsys.readouterr().err == f"dualtemp: --workers must be from 0 to 1,024, got {workers}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["report", "explore", "analyze", "evaluate", "embed", "search", "export", "data"])
def test_threads_are_those_that_torch_then_uses(command: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for threads in (3, 1):
        main([command, *WORDS.get(command, []), "--threads", str(threads)])  # there is no such run
        assert torch.get_num_threads() == threads
