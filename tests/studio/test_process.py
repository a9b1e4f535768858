"""The studio as a real process: killed, without room on the disk, twice at once, wrongly asked for."""

import csv
import re
import resource
import shutil
import signal
from pathlib import Path

import pytest
from command_processes import Commands
from started_studio import Started


@pytest.fixture
def features(embeddings: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(embeddings, tmp_path / "features.npz"))


def labels(path: Path) -> dict[str, str]:
    with open(path, newline="") as file:
        return {row["name"]: row["label"] for row in csv.DictReader(file)}


def test_a_killed_studio_loses_no_label_that_it_has_confirmed(
    commands: Commands, features: Path, tmp_path: Path
) -> None:
    path = tmp_path / "l.csv"
    first = Started(commands, features, "--labels", path)
    for number in range(6):
        assert first.ask("/api/label", {"ids": [number], "label": f"word {number}"}).code == 200
    first.command.send(signal.SIGKILL)  # at once after the last answer
    assert first.command.wait().code == -signal.SIGKILL
    assert sorted(labels(path).values()) == sorted(f"word {number}" for number in range(6))
    again = Started(commands, features, "--labels", path)
    entries = again.ask("/api/state").json()["labels"]["entries"]
    assert {int(number): entry[0] for number, entry in entries.items()} == {n: f"word {n}" for n in range(6)}
    for left in range(5, 3, -1):  # it still knows what can be undone, one by one
        assert again.ask("/api/undo", {}).code == 200
        assert len(labels(path)) == left
    again.command.send(signal.SIGKILL)
    again.command.wait()
    third = Started(commands, features, "--labels", path)
    for left in range(3, -1, -1):
        assert third.ask("/api/undo", {}).json()["can_undo"] == (left > 0)
        assert len(labels(path)) == left
    third.command.send(signal.SIGINT)
    assert third.command.wait().code == 0
    assert [each.name for each in tmp_path.glob(".l.csv*")] == [".l.csv.undo"], "no lock, nothing half-written"


def test_a_full_disk_refuses_a_label_and_loses_none(commands: Commands, features: Path, tmp_path: Path) -> None:
    path = tmp_path / "l.csv"
    studio = Started(commands, features, "--labels", path)
    assert studio.ask("/api/label", {"ids": [1], "label": "kept"}).code == 200
    resource.prlimit(studio.command.pid, resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    answer = studio.ask("/api/label", {"ids": list(range(60)), "label": "too much"})
    assert answer.code == 507
    assert "nothing was changed" in answer.json()["error"]
    assert list(labels(path).values()) == ["kept"]
    assert list(studio.ask("/api/state").json()["labels"]["entries"].values()) == [["kept", []]]
    resource.prlimit(studio.command.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert studio.ask("/api/label", {"ids": list(range(60)), "label": "room again"}).code == 200
    assert set(labels(path).values()) == {"room again"}
    # A second studio does not write the same file.
    refused = commands.run("studio", features, "--labels", path, "--no-browser", "--port", "0")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "another studio writes" in refused.err
    studio.command.send(signal.SIGTERM)
    assert studio.command.wait().code in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["/no/such"], "no such folder"),
        (["{features}", "--port", "70000"], "--port is a number"),
        (["{features}", "--labels", "{features}"], "no file of labels|cannot be read"),
        (["{broken}"], "cannot be read"),
        (["{empty}"], "no image file"),
        (["{features}", "--host", "203.0.113.9"], "cannot be opened"),
    ],
)
def test_mistakes_are_one_line(commands: Commands, features: Path, tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.csv").write_text("nothing\n")
    there = {"features": features, "broken": tmp_path / "broken.csv", "empty": tmp_path / "empty"}
    ended = commands.run("studio", *(word.format(**there) for word in words), "--no-browser", "--encoder", "imagenet")
    assert ended.code == 2, ended.out
    assert ended.err.count("\n") == 1
    assert re.search(said, ended.err), ended.err
