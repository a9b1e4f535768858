"""environment.json as an earlier version wrote it, as a hand has changed it, and as a kill may have left it."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import FULL, made_run

from dualtemp.cli import main
from dualtemp.errors import UserError
from dualtemp.runs.environment_file import read_environment
from dualtemp.runs.folder import RunFolder

# As `dualtemp train` writes it for a run of its own images that has a start.
WRITTEN: dict[str, Any] = {
    "dualtemp": "1.0.0",
    "device": "cpu",
    "threads": 2,
    "processes": 1,
    "launch": None,
    "split": 4,
    "train": {"images": 90, "fingerprint": None, "names": "5f", "labels": "0a", "classes": "b1", "commonest": 50},
    "unlabelled": None,
    "test": {"images": 10, "fingerprint": "8462", "commonest": 5},
    "held_out": 9,
    "images": {
        "channels": 3,
        "size": 224,
        "mean": [0.5, 0, 1.5],
        "std": [0.5, 1, 0.25],
        "interpolation": "bilinear",
        "crop": 0.875,
        "levels": [[0, 4095.0]],
        "classes": ["cat", "dog"],
    },
    "start": {
        "word": "imagenet",
        "origin": "timm",
        "network": None,
        "input": {"mean": [0.5], "std": [0.5], "size": 224, "interpolation": "bicubic", "crop": 1},
    },
}
WRONG: list[tuple[str, Any]] = [
    *[(name, value) for name in ("threads", "processes", "split") for value in ("2", 0, True, 1.0, [2])],
    ("threads", 100_000),
    ("held_out", "9"),
    *[(name, value) for name in ("train", "unlabelled", "test", "images", "start") for value in ("x", [1], 7)],
    *[(f"{name}.images", value) for name in ("train", "unlabelled", "test") for value in ("many", -1, 2.5, [3], False)],
    ("train.fingerprint", 12),
    ("test.commonest", "5"),
    ("images.channels", "3"),
    ("images.size", [224, 224]),
    *[(f"images.{name}", value) for name in ("mean", "std") for value in ("0.5", 0.5, [], ["0.5"], [float("nan")])],
    ("images.mean", [10**400]),
    ("images.interpolation", "nearest"),
    ("images.interpolation", ["bicubic"]),
    *[("images.crop", value) for value in ("1", 0, 1.5)],
    *[("images.levels", value) for value in (4095, [4095], [[0]], [[1, 0]], [["0", "1"]])],
    ("images.classes", "cat"),
    ("start.origin", 3),
    ("start.input", "224 px"),
    ("start.input.size", "224"),
]


def changed(name: str, value: Any) -> dict[str, Any]:
    """What was written, with another value of an entry such as "images.mean"."""
    content = json.loads(json.dumps(WRITTEN))
    *outer, last = name.split(".")
    part = content
    for each in outer:
        part[each] = part[each] or {}
        part = part[each]
    part[last] = value
    return content


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_an_entry_of_another_kind_is_one_line_that_names_it(name: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    path.write_text(json.dumps(changed(name, value)))
    with pytest.raises(UserError) as refused:
        read_environment(path)
    assert str(refused.value).startswith(f"{path}: {name} must be ")
    assert "\n" not in str(refused.value)


def test_what_any_version_wrote_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    without = [{name: value for name, value in WRITTEN.items() if name != left_out} for left_out in WRITTEN]
    nothing = [changed(name, None) for name in {name for name, _ in WRONG}]
    for content in (WRITTEN, {}, *without, *nothing, {**WRITTEN, "added later": [1]}):
        path.write_text(json.dumps(content))
        assert read_environment(path) == content


@pytest.mark.parametrize("content", [None, "", '{"threads": 2', "[]", "7", "\xff", "[" * 100_000])
def test_a_file_that_is_missing_or_cut_short_says_nothing(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    assert read_environment(path) == {}


@pytest.mark.parametrize(
    ("name", "value"), [("test.images", "many"), ("images.mean", ["a"]), ("train.images", [1]), ("threads", "all")]
)
def test_report_export_and_resume_refuse_a_changed_environment_in_one_line(
    name: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made_run(tmp_path / "run", FULL, data="digits", backbone="resnet_mini")
    (run / "environment.json").write_text(json.dumps(changed(name, value)))
    for command in (["report", run], ["export", run], ["resume", run]):
        assert main([str(word) for word in command]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith(f"dualtemp: {run}/environment.json: {name} must be ")
    assert not (run / "report.html").exists()
    assert not (run / "export").exists()


def test_threads_and_processes_are_those_that_were_recorded(tmp_path: Path) -> None:
    run = RunFolder(made_run(tmp_path / "run"))
    assert (run.threads(), run.processes()) == (None, None)
    run.environment.write_text(json.dumps(WRITTEN))
    assert (run.threads(), run.processes()) == (2, 1)
