"""Commands where something that every program takes for granted is missing: streams, a home, locks, room, time."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_processes import PATIENCE, Commands, until

from dualtemp.runs.folder import RunFolder
from dualtemp.runs.status import status_of

RUN = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "128", "--knn-images", "64")
LONG = "n" * 300
NO_LOCKS = """
import errno, fcntl
def refuse(*_): raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = refuse
"""
NO_HOME = """
import os, pwd
def refuse(*_): raise KeyError("getpwuid(): uid not found")
pwd.getpwuid = refuse
for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "DUALTEMP_DATA"): os.environ.pop(name, None)
"""


@pytest.fixture(scope="module")
def trained(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, not to be written into."""
    path = tmp_path_factory.mktemp("trained") / "run"
    ended = commands.run("train", *RUN, "--epochs", "1", "--no-page", "--out", path)
    assert ended.code == 0, ended.err
    return path


def in_the_shell(redirected: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A command with its streams as the shell's words say: ">&-" is closed standard output."""
    line = f'exec "$0" -m dualtemp "$@" {redirected}'
    command = ["sh", "-c", line, sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize(
    ("words", "redirected", "code", "told"),
    [
        (["--version"], ">&-", 0, ""),
        (["data"], ">&- 2>&- <&-", 0, ""),
        (["dta"], ">&-", 2, "no command 'dta'"),
        (["dta"], "2>&-", 2, ""),
        (["dta"], "2>/dev/full", 2, ""),
        (["train", "--help"], ">/dev/full", 2, "standard output could not be written (No space left on device)"),
        (["data", "--json"], ">/dev/full", 2, "standard output could not be written (No space left on device)"),
        (["data"], ">/dev/full 2>/dev/full", 2, ""),
    ],
)
def test_closed_and_full_streams_end_in_an_exit_code(words: list[str], redirected: str, code: int, told: str) -> None:
    ended = in_the_shell(redirected, *words)
    assert ended.returncode == code
    assert told in ended.stderr
    assert ended.stderr.count("\n") == bool(told)


@pytest.mark.slow
def test_a_run_whose_streams_are_closed_writes_nothing_of_what_it_says_into_its_files(
    trained: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    ended = in_the_shell(">&- 2>&- <&-", "train", *RUN, "--epochs", "1", "--no-page", "--out", path, "--threads", "1")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert (path / "backbone.safetensors").read_bytes() == (trained / "backbone.safetensors").read_bytes()
    assert [line["epoch"] for line in RunFolder(path).history()] == [1]
    assert (path / ".lock").read_bytes() == b""


def test_a_run_whose_log_lies_on_a_full_disk_goes_on_to_its_end_and_says_so(
    commands: Commands, trained: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    ended = commands.run("train", *RUN, "--epochs", "1", "--out", path, to="/dev/full")
    assert ended.code == 2
    assert ended.err == "dualtemp: standard output could not be written (No space left on device): make room\n"
    assert status_of(RunFolder(path)).word == "done"
    assert (path / "backbone.safetensors").read_bytes() == (trained / "backbone.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("words", "code"),
    [(["doctor"], 0), (["data", "digits"], 0), (["data"], 2), (["data", "cifar10"], 2), (["data", "~/x"], 2)],
)
def test_without_a_home_directory_what_needs_none_works_and_the_rest_says_what_to_do(
    words: list[str], code: int, commands: Commands
) -> None:
    ended = commands.run(*words, first=NO_HOME)
    assert ended.code == code, ended.err
    if code == 2:
        assert ended.err.count("\n") == 1
        assert "DUALTEMP_DATA" in ended.err or "~/x: no such folder" in ended.err


def test_the_home_of_nobody_is_no_folder(commands: Commands) -> None:
    ended = commands.run("data", "~no-such-user/images")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "~no-such-user/images: no such folder or file" in ended.err
    ended = commands.run("data", "cifar10", env={"DUALTEMP_DATA": "~no-such-user/cache"})
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "no home directory" in ended.err


@pytest.mark.parametrize("zone", ["UTC+24", "UTC-167", ":/nowhere", "\udcff"])
def test_a_strange_time_zone_does_not_matter(zone: str, commands: Commands, trained: Path) -> None:
    first = f"import os, time; os.environ['TZ'] = {zone!r}; time.tzset()"
    assert commands.run("runs", trained.parent, "--json", first=first).code == 0
    assert commands.run("report", trained, "--no-pictures", "--out", trained.parent / "x.html", first=first).code == 0


def test_times_that_no_calendar_has_do_not_matter(commands: Commands, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    for seconds in (-(2**33), 2**34 - 1):
        os.utime(run / "metrics.jsonl", (seconds, seconds))
        ended = commands.run("runs", tmp_path, "--json")
        assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--data", "digits", "--out", LONG],
        ["train", "--data", LONG, "--out", "new"],
        ["train", "--data", f"./{LONG}", "--out", "new"],
        ["train", "--config", LONG, "--out", "new"],
        ["train", "--data", "digits", "--init", LONG, "--out", "new"],
        ["resume", LONG],
        ["data", f"{LONG}.npz"],
        ["data", "digits", "--show", "--out", f"{LONG}.png"],
        ["runs", LONG],
        ["report", LONG],
        ["report", "RUN", "--no-pictures", "--out", f"{LONG}.html"],
        ["report", "RUN", "RUN", "--out", f"{LONG}.html"],
        ["explore", "RUN", "--out", f"{LONG}.html"],
        ["evaluate", "RUN", "--data", LONG],
        ["embed", "RUN", "--out", f"{LONG}.npz"],
        ["search", "RUN", LONG],
        ["search", "RUN", f"{LONG}.png", "--embeddings", f"{LONG}.npz"],
        ["near-duplicates", "RUN", "--embeddings", f"{LONG}.npz"],
        ["near-duplicates", "RUN", "--out", f"{LONG}.csv"],
        ["export", "RUN", "--out", LONG],
        ["demo", "--out", LONG],
        ["reproduce", "T-reverse", "--results", LONG],
        ["paper", "--results", LONG, "--page", f"{LONG}.html"],
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)
def test_names_over_the_limit_are_one_line(words: list[str], commands: Commands, trained: Path, tmp_path: Path) -> None:
    ended = commands.run(
        *(str(trained) if word == "RUN" else word for word in words), first=f"os.chdir({str(tmp_path)!r})"
    )
    assert ended.code == 2, ended.err
    assert ended.err.startswith("dualtemp: ")
    assert ended.err.count("\n") == 1, ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_text_is_told_in_trouble_txt(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.set_trouble(f"{os.fsdecode(bytes([0xE9]))}.png is gone")
    assert run.trouble.read_bytes() == b"\\udce9.png is gone\n"


@pytest.mark.slow
def test_without_locks_two_commands_do_not_write_one_run_and_a_killed_one_leaves_it_free(
    commands: Commands, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    first = commands.start("train", *RUN, "--epochs", "100000", "--no-page", "--out", path, first=NO_LOCKS)
    assert until(first, (path / "metrics.jsonl").exists), first.err.read_text()
    assert commands.run("runs", tmp_path, "--json", first=NO_LOCKS).out.count('"running"') == 1
    for words in (["resume", path], ["train", *RUN, "--out", path]):
        second = commands.run(*words, "--no-page", first=NO_LOCKS)
        assert (second.code, second.err.count("\n")) == (2, 1), second.err
    assert first.poll() is None, "the first goes on"
    first.send(signal.SIGKILL)
    first.wait()
    epochs = len(RunFolder(path).history())
    third = commands.run("resume", path, "--epochs", epochs + 1, "--no-page", first=NO_LOCKS)
    assert third.code == 0, third.err
    assert [line["epoch"] for line in RunFolder(path).history()] == list(range(1, epochs + 2))
    assert not list(path.glob(".lock.*"))
