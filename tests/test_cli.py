import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_processes import PATIENCE
from PIL import Image

from dualtemp import __version__
from dualtemp.cli import main


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "cache"


def in_a_process(*words: str) -> subprocess.CompletedProcess[str]:
    """`python -X importtime -m dualtemp WORDS`: imports are listed on standard error."""
    command = [sys.executable, "-X", "importtime", "-m", "dualtemp", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--help",),
        ("data", "--help"),
        ("data",),
        ("train", "--help"),
        ("resume", "--help"),
        ("--version",),
        ("dta",),
        ("train", "--data", "digits", "--metod", "simco", "--out", "x"),
        ("train", "--data", "digits", "--method", "simcoo", "--out", "x"),
    ],
)
def test_what_needs_no_images_does_not_import_torch(words: tuple[str, ...]) -> None:
    done = in_a_process(*words)
    assert done.returncode == (2 if "dta" in words or "x" in words else 0)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "dualtemp.cli" in imported
    assert not imported & {"torch", "torchvision", "numpy", "PIL.Image"}


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_the_sets_are_listed_with_what_is_cached(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cache / "cifar100").mkdir(parents=True)
    (cache / "cifar100" / "train.npz").touch()
    assert main(["data"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "shipped" in rows["digits"]
    assert "cached" in rows["cifar100"]
    assert "no (170 MB)" in rows["cifar10"]
    assert "50,000" in rows["cifar10"]
    assert "by hand" in rows["imagenet100"]


def test_the_listing_is_there_for_programs(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cache / "imagenet" / "train").mkdir(parents=True)
    assert main(["data", "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert listing["cache"] == str(cache)
    assert {row["name"]: row["cached"] for row in listing["sets"]} == {
        "digits": True,
        "cifar10": False,
        "cifar100": False,
        "svhn": False,
        "stl10": False,
        "fashion-mnist": False,
        "imagenet100": True,
    }


def test_a_source_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "digits"]) == 0
    out = capsys.readouterr().out
    assert "train: 1,438 images" in out
    assert "10, 139 to 146 images each" in out


def test_unreadable_files_are_named_and_make_the_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "[bold]set"  # brackets are no markup
    folder.mkdir()
    for number in range(11):
        Image.new("RGB", (120, 100)).save(folder / f"{number}.png")
    (folder / "[red]bad.png").write_bytes(b"no")
    assert main(["data", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "[bold]set" in out
    assert "unreadable: 1 file\n  [red]bad.png: not an image that Pillow can read" in out
    assert "test: 1 image, fingerprint" in out
    assert "sizes    none can be read\n" in out  # of the one that is held out
    assert main(["data", str(folder), "--json"]) == 1
    assert list(json.loads(capsys.readouterr().out)["unreadable"]) == ["[red]bad.png"]


def test_the_contact_sheet_is_written_where_told_or_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "digits", "--show"]) == 0
    assert capsys.readouterr().out == "digits-views.png\n"
    assert main(["data", "digits", "--show", "--recipe", "byol", "--out", "sub.png"]) == 0
    first, second = (np.asarray(Image.open(tmp_path / name)) for name in ("digits-views.png", "sub.png"))
    assert first.shape == second.shape
    assert (first != second).any()


def test_a_contact_sheet_does_not_become_an_image_of_the_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(11):
        Image.new("RGB", (20, 20)).save(tmp_path / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    assert main(["data", ".", "--show"]) == 2
    assert "give --out" in capsys.readouterr().err
    assert not list(tmp_path.glob("*views.png"))


def test_a_link_to_nowhere_is_an_unreadable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(11):
        Image.new("RGB", (120, 100 + number)).save(tmp_path / f"{number}.png")
    (tmp_path / "gone.png").symlink_to("nowhere")
    assert main(["data", str(tmp_path)]) == 1
    assert "gone.png" in capsys.readouterr().out


def test_labels_can_be_left_aside(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "digits", "--no-labels"]) == 0
    assert "none (no labels)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dta"], "dualtemp: no command 'dta': did you mean 'data'?"),
        (["xyzzy"], "dualtemp: no command 'xyzzy': Commands: train, resume, data"),
        (["data", "cifar11"], "did you mean 'cifar10'?"),
        (["data", "./nowhere"], "no such folder or file"),
        (["data", "--show"], "--show needs a set"),
        (["data", "digits", "--show", "--recipe", "papr"], "did you mean 'paper'?"),
        (["data", "digits", "--show", "--out", "no/where/x.png"], "cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dualtemp: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_a_mistyped_flag_suggests_the_nearest_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--shwo"]) == 2
    assert capsys.readouterr().err == "dualtemp: no setting is called --shwo: did you mean --show?\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_stops_early_is_no_error(monkeypatch: pytest.MonkeyPatch, unbuffered: str) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "dualtemp", "data", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
