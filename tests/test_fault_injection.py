"""Faults at every file-system event of a beginning, disks that fill up, and command lines made at random."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from command_processes import Command, Commands, Ended
from PIL import Image
from run_contents import different, everything

from dualtemp.runs.folder import RunFolder

RUN = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "32", "--subset", "64", "--knn-images", "64")
TRAIN = ("train", *RUN, "--epochs", "1", "--quiet", "--no-page")
# Counts what a process does to files below a folder; at event number `at` it is killed, or the event fails. At 0 all
# events are told instead.
FAULT = """
import signal
def hook(event, words, seen=[0]):
    if event == "open":
        changes = isinstance(words[1], str) and set(words[1]) & set("wax+")
    else:
        changes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
    if changes and {folder!r} in str(words[0]):
        seen[0] += 1
        if {at} == 0:
            os.write(2, f"{{event}} {{words[:2]}}\\n".encode())
        if seen[0] == {at}:
            if {error} == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError({error}, os.strerror({error}), str(words[0]))
sys.addaudithook(hook)
"""
CLOSED = "http://127.0.0.1:9"  # nothing is fetched


class Undisturbed(NamedTuple):
    """A run that nothing has disturbed, and its file-system events; not to be written into."""

    path: Path
    events: list[str]

    @property
    def begun(self) -> int:
        """The number of the event that makes the folder a run."""
        return next(n for n, event in enumerate(self.events, 1) if "rename" in event and "config.yaml'" in event)


@pytest.fixture(scope="module")
def whole(commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    path = tmp_path_factory.mktemp("whole") / "a" / "run"
    ended = commands.run(*TRAIN, "--out", path, first=FAULT.format(folder=str(path.parent), at=0, error=0))
    assert ended.code == 0, ended.err
    return Undisturbed(path, ended.err.splitlines())


def in_pairs(started: Iterator[Command]) -> list[Ended]:
    """Start commands two at a time, and wait for all."""
    ended, running = [], []
    for command in started:
        running.append(command)
        if len(running) == 2:
            ended.append(running.pop(0).wait())
    return ended + [command.wait() for command in running]


def finish(commands: Commands, path: Path) -> Command:
    """The command that a user would give next."""
    begun = RunFolder(path).config.exists()
    return commands.start("resume", path, "--quiet", "--no-page") if begun else commands.start(*TRAIN, "--out", path)


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_event_of_its_start_is_begun_again_or_resumed(
    commands: Commands, whole: Undisturbed, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{at}" / "run" for at in range(1, whole.begun + 2)]
    faults = [FAULT.format(folder=str(path.parent), at=at, error=0) for at, path in enumerate(paths, 1)]
    killed = in_pairs(
        commands.start(*TRAIN, "--out", path, first=fault) for path, fault in zip(paths, faults, strict=True)
    )
    assert [ended.code for ended in killed] == [-9] * len(paths)
    assert [path.exists() for path in paths[:2]] == [False, False]
    assert any(list(path.glob(".*.part")) for path in paths)
    assert (paths[-1] / "config.yaml").exists()
    paths = paths[1::2]
    for ended in in_pairs(finish(commands, path) for path in paths):
        assert (ended.code, ended.err) == (0, "")
    for path in paths:
        assert different(everything(path), everything(whole.path)) == []
        assert not list(path.rglob("*.part"))


@pytest.mark.slow
def test_a_disk_that_fails_at_any_event_of_a_run_is_one_line_and_loses_nothing(
    commands: Commands, whole: Undisturbed, tmp_path: Path
) -> None:
    paths = [tmp_path / f"{at}" / "run" for at in range(1, len(whole.events) + 1)]
    errors = [(28, 5)[at % 2] for at in range(len(paths))]  # no space left, input/output error
    faults = [
        FAULT.format(folder=str(path.parent), at=at, error=error)
        for at, (path, error) in enumerate(zip(paths, errors, strict=True), 1)
    ]
    failed = in_pairs(
        commands.start(*TRAIN, "--out", path, first=fault) for path, fault in zip(paths, faults, strict=True)
    )
    left = []
    for ended, path in zip(failed, paths, strict=True):
        if ended.code == 0:  # what failed was of no importance
            assert ended.err == ""
            assert different(everything(path), everything(whole.path)) == []
            continue
        assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
        assert "No space left" in ended.err or "Input/output error" in ended.err
        if RunFolder(path).config.exists():
            left.append(path)
        else:
            assert not path.parent.exists(), ended.err
    assert len(left) >= 5
    for ended in in_pairs(finish(commands, path) for path in left):
        assert (ended.code, ended.err) == (0, "")
    for path in left:
        assert different(everything(path), everything(whole.path)) == []
        assert not list(path.rglob("*.part"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kilobytes, where this process may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", path], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_a_run_on_a_disk_that_is_too_small_goes_on_once_there_is_room(
    commands: Commands, whole: Undisturbed, small_disk: Path
) -> None:
    path, needed = small_disk / "run", sum(file.stat().st_size for file in whole.path.rglob("*") if file.is_file())
    (small_disk / "filler").write_bytes(bytes(64 * 1024))
    ended = commands.run(*TRAIN, "--out", path)
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert os.listdir(small_disk) == ["filler"], "nothing is left of a run that could not begin"
    (small_disk / "filler").unlink()
    for part in (8, 2):  # of what is needed: not the weights, not the checkpoint
        subprocess.run(["mount", "-o", f"remount,size={needed // part}", small_disk], check=True)
        ended = finish(commands, path).wait()
        assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
        assert "No space left" in ended.err
    subprocess.run(["mount", "-o", f"remount,size={4 * needed}", small_disk], check=True)
    ended = finish(commands, path).wait()
    assert (ended.code, ended.err) == (0, "")
    assert different(everything(path), everything(whole.path)) == []


# Command lines that work, on a good run, and what they are spoiled with.
LINES = """
train --data digits --backbone resnet_mini --batch 32 --subset 64 --epochs 1 --out new --no-page
train --data photos --epochs 1 --batch 4 --image-size 16 --backbone resnet_mini --out new --no-page --workers 0
resume good --epochs 1 --no-page --threads 1
data photos --json
data digits --show --out sheet.png
runs . --json
report good --no-pictures --out page.html
explore good --out explore.html
analyze good entropy --taus 0.1 1 --out found.csv
embed good --data photos --out features.npz --batch 8 --workers 0
search good photos/a/0.png --data photos -k 2 --workers 0
near-duplicates good --data photos --threshold 0.9 --out pairs.csv --workers 0
export good --format safetensors --out exported
evaluate good --only knn
paper --results results
""".strip().splitlines()
WORDS = """
- -- -1 0 nan 1e999 [] ~nobody /dev/null /dev/full /proc/self/mem . good photos photos/a/0.png
--json --data --out --config --epochs --device=cuda:7 --out=good/config.yaml --seed=-1 --threads=0
"""
SPOILERS = ["", " ", "a\nb", "\udcff", "é", "9" * 40, "n" * 300, *WORDS.split()]
SURROUNDINGS = [
    ("COLUMNS", "1"),
    ("COLUMNS", "x"),
    ("TZ", "UTC+24"),
    ("LC_ALL", "C"),
    ("TERM", "no such"),
    ("HOME", ""),
]


def spoiled(draw: random.Random) -> list[str]:
    """A command line with one to three words missing, doubled, replaced, cut or exchanged."""
    words: list[str] = list(draw.choice(LINES).split())
    command = words.pop(0)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(words)) if words else 0
        match draw.randrange(6):
            case 0:
                del words[at : at + 1]
            case 1:
                words[at:at] = words[at : at + 1]
            case 2:
                words[at : at + 1] = [draw.choice(SPOILERS)]
            case 3:
                words[at:at] = [draw.choice(SPOILERS)]
            case 4:
                words[at : at + 1] = [word[: draw.randrange(len(word) + 1)] for word in words[at : at + 1]]
            case _:
                draw.shuffle(words)
    return [command, *words]


@pytest.mark.parametrize(("seed", "count"), [(0, 30), pytest.param(1, 600, marks=pytest.mark.slow)])
def test_no_command_line_ends_in_a_traceback(
    seed: int, count: int, commands: Commands, whole: Undisturbed, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    for name, colour in (("a/0", 0), ("a/1", 90), ("b/2", 180), ("b/3", 255)):
        path = tmp_path / "place" / "photos" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((20, 24), 50 + colour / 3).convert("RGB").save(path)
    shutil.copytree(whole.path, tmp_path / "place" / "good")
    lines, places = [spoiled(draw) for _ in range(count)], []

    def begin() -> Iterator[Command]:
        for number, words in enumerate(lines):
            places.append(shutil.copytree(tmp_path / "place", tmp_path / str(number)))
            env = {"DUALTEMP_DATA": str(tmp_path / "cache"), "http_proxy": CLOSED, "https_proxy": CLOSED}
            env |= {"npm_config_registry": CLOSED} | dict([draw.choice(SURROUNDINGS)])
            yield commands.start(*words, env=env, first=f"os.chdir({str(places[-1])!r}); sys.stdin = open(os.devnull)")

    wrong = []
    for words, ended, place in zip(lines, in_pairs(begin()), places, strict=True):
        codes = (0, 1, 2) if words[0] == "data" else (0, 2)  # 1: some files cannot be read
        last = ended.err.splitlines()[-1:]
        told = ended.code != 2 or (last and last[0].startswith("dualtemp: "))
        if "Traceback" in ended.err or ended.code not in codes or not told or list(place.rglob("*.part")):
            wrong.append((words, ended.code, ended.err[-600:]))
    assert wrong == []
