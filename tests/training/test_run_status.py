"""How a run stands, from its folder: running, done, interrupted, failed."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from command_processes import Commands, until

from dualtemp.config import complete, settings
from dualtemp.file_lock import held, locked
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.status import status_of


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """The folder of a run of three epochs that was begun and let go."""
    folder = RunFolder(tmp_path / "run")
    with folder.create(complete(settings({"data": "digits", "epochs": 3}), 8), {}):
        pass
    return folder


def test_a_run_is_running_while_its_lock_is_held_and_asking_changes_nothing(run: RunFolder) -> None:
    with locked(run.lock):
        for _ in range(3):
            assert status_of(run) == ("running", "0 of 3 epochs")
    assert status_of(run).word == "interrupted"
    with locked(run.lock, patience=0):  # free: nobody who asked holds it
        pass


def test_a_run_that_is_let_go_before_its_end_is_interrupted_and_after_it_done(run: RunFolder) -> None:
    for epoch in range(1, 4):
        assert status_of(run) == ("interrupted", f"{epoch - 1} of 3 epochs")
        run.append({"epoch": epoch, "loss": 1.0})
    assert status_of(run) == ("done", "3 of 3 epochs")


def test_a_run_with_trouble_has_failed_until_it_goes_on(run: RunFolder) -> None:
    run.set_trouble("the disk\nis full;  make room")
    assert run.trouble.read_text() == "the disk is full; make room\n"
    assert status_of(run) == ("failed", "the disk is full; make room")
    with locked(run.lock):
        assert status_of(run).word == "running"
    run.clear_trouble()
    run.clear_trouble()
    assert status_of(run).word == "interrupted"


def test_many_may_ask_at_once_and_none_takes_another_for_the_writer(run: RunFolder) -> None:
    answers: list[bool] = []
    ask = lambda: answers.extend(held(run.lock) for _ in range(300))  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [False] * 1200


def test_where_there_is_no_lock_nobody_holds_it(tmp_path: Path) -> None:
    assert not held(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_real_run_tells_how_it_stands(commands: Commands, tmp_path: Path) -> None:
    path, words = tmp_path / "run", ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64")
    words = (*words, "--subset", "128", "--epochs", "1000", "--evaluate-every", "1000", "--out", path)
    command = commands.start("train", *words)
    assert until(command, (path / "metrics.jsonl").exists), command.err.read_text()
    assert status_of(RunFolder(path)).word == "running"
    command.send(9)
    command.wait()
    assert status_of(RunFolder(path)).word == "interrupted"


def test_a_failed_run_that_goes_on_has_no_trouble_any_more(commands: Commands, run_once: Any, tmp_path: Path) -> None:
    words = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "128", "--epochs", "1")
    path = Path(shutil.copytree(run_once(*words), tmp_path / "run"))
    RunFolder(path).set_trouble("something")
    ended = commands.run("resume", path, "--epochs", "2")
    assert ended.code == 0, ended.err
    assert status_of(RunFolder(path)) == ("done", "2 of 2 epochs")


def test_asking_needs_no_torch(run: RunFolder) -> None:
    program = (
        "import sys, json; from pathlib import Path; from dualtemp.runs.folder import RunFolder; "
        "from dualtemp.runs.status import status_of; "
        "print(json.dumps([status_of(RunFolder(Path(sys.argv[1]))).word, 'torch' in sys.modules]))"
    )
    asked = subprocess.run([sys.executable, "-c", program, run.path], capture_output=True, text=True, check=True)
    assert json.loads(asked.stdout) == ["interrupted", False]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"held_out_gained": 1, "held_out_lost": 30}, "it fell below its start"),
        ({"held_out_gained": 1, "held_out_lost": 30, "judged_past": 0.1}, "it fell below its start"),
        ({"held_out_gained": 3, "held_out_lost": 3, "judged_past": 0.9}, "the judge rated an earlier encoder higher"),
        ({"judged_past": 0.9}, "the judge rated an earlier encoder higher"),
    ],
)
def test_a_run_that_was_asked_to_stop_by_two_tells_which_of_them_did(run: RunFolder, told: dict, why: str) -> None:
    run.append({"epoch": 1, "stopped": True, **told})
    assert status_of(run) == ("done", f"1 of 3 epochs; stopped, because {why}")
