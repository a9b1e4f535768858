"""What a user gets wrong before training starts is one line, exit code 2, and nothing is created."""

from pathlib import Path
from typing import Any

import pytest
from command_processes import Commands, until
from drawn_photos import draw_photos

from dualtemp.runs.folder import RunFolder

RUN = ("--data", "digits", "--backbone", "resnet_mini", "--batch", "64", "--subset", "128", "--epochs", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--backbone", "resnet_mimi"), "resnet_mini"),
        (("--init", "nowhere.pt"), "no such weights file"),
        (("--batch", "129"), "larger than the set of 128 images"),
        (("--recipe", "papr"), "paper"),
        (("--device", "cuda:77"), "--device cpu"),
        (("--data", "no/folder"), "no/folder"),
        (("--method", "moco", "--dictionary-size", "64", "--vector-size", "65"), "vector_size"),
    ],
)
def test_a_mistake_creates_nothing(words: tuple[str, ...], said: str, commands: Commands, tmp_path: Path) -> None:
    ended = commands.run("train", *RUN, *words, "--out", tmp_path / "some" / "run")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert said in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("classes", "images", "said"),
    [(1, 24, "needs two classes or more, and"), (12, 1, "needs a class of two images or more, to hold one out, and")],
)
def test_a_classifier_of_one_class_or_of_single_images_creates_nothing(
    classes: int, images: int, said: str, commands: Commands, tmp_path: Path
) -> None:
    root, small = tmp_path / "photos", ("--init", "none", "--batch", "4", "--image-size", "16", "--epochs", "1")
    for number in range(classes):
        draw_photos(root / f"class{number:02}", images, first=number * images)
    ended = commands.run(
        "train", "--data", root, "--method", "supervised", *small, "--quiet", "--out", tmp_path / "run"
    )
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert f"supervised learning {said} {root} has" in ended.err
    assert list(tmp_path.iterdir()) == [root]


def test_an_existing_folder_or_file_is_never_written_to(run_once: Any, commands: Commands, tmp_path: Path) -> None:
    whole = run_once(*RUN)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years")
    (tmp_path / "file").write_text("years")
    for path, said in ((whole, "dualtemp resume"), (tmp_path / "full", "not a run"), (tmp_path / "file", "not a run")):
        before = {item: item.stat().st_mtime_ns for item in (path, *path.rglob("*"))}
        ended = commands.run("train", *RUN, "--out", path)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert said in ended.err
        assert {item: item.stat().st_mtime_ns for item in (path, *path.rglob("*"))} == before


@pytest.mark.parametrize("place", ["/proc/run", "/dev/null/run"])
def test_a_place_that_cannot_be_written_is_told(place: str, commands: Commands) -> None:
    ended = commands.run("train", *RUN, "--out", place)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert place in ended.err


def test_an_empty_folder_and_what_a_kill_left_of_a_beginning_may_become_a_run(
    commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "left" / "checkpoints").mkdir(parents=True)
    (tmp_path / "left" / ".lock").touch()
    (tmp_path / "left" / ".config.yaml.7.part").touch()
    for name in ("empty", "left"):
        ended = commands.run("train", *RUN, "--out", tmp_path / name)
        assert ended.code == 0, ended.err


@pytest.mark.slow
def test_two_processes_cannot_write_one_run(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = commands.start("train", *RUN, "--epochs", "1000", "--out", path)
    assert until(first, (path / "metrics.jsonl").exists), first.err.read_text()
    second = commands.run("resume", path)
    assert (second.code, second.err.count("\n")) == (2, 1)
    assert "being written by another process" in second.err
    assert first.poll() is None, "the first goes on"
    first.send(9)
    first.wait()
    third = commands.start("resume", path)
    assert until(third, lambda: "epoch" in third.out.read_text()), third.err.read_text()
    third.send(9)


def test_two_processes_that_begin_one_run_at_once_make_one_run(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "run"
    ended = [command.wait() for command in [commands.start("train", *RUN, "--out", path) for _ in range(2)]]
    assert sorted(one.code for one in ended) == [0, 2], [one.err for one in ended]
    assert len(RunFolder(path).history()) == 1
