"""Malformed settings, files and folders thrown at every command: one clear line, exit code 2, nothing half-written."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dualtemp.cli import main
from dualtemp.commands.lookup import all_commands
from dualtemp.config import setting_names

COMMANDS = [command.name for command in all_commands()]
QUICK = ["--backbone", "resnet_mini", "--batch", "32", "--epochs", "1", "--subset", "64", "--knn-images", "64"]
TRAIN = ["train", "--data", "digits", *QUICK, "--threads", "1", "--device", "cpu", "--no-page", "--quiet"]
# Commands that look at a run, and what else they need.
OF_RUN = {
    "resume": [],
    "report": [],
    "explore": [],
    "analyze": ["neighbours"],
    "evaluate": ["--no-fine-tune"],
    "embed": ["--out", "out/features.npz"],
    "search": ["photo.png"],
    "near-duplicates": [],
    "select": [],
    "predict": ["--json"],
    "judge": [],
    "export": [],
}
WITH_DATA = ["explore", "analyze", "evaluate", "embed", "search", "near-duplicates", "select", "predict"]
BAD_RUNS = ["missing", "photo.png", "empty", "garbage", "binary", "listed", "unknown", "typed", "folder", ".", "é\n"]
BAD_DATA = ["missing", "note.txt", "empty", "broken", "damaged.npz", "shapeless.npz", "cifr10", "é\n"]
NASTY = ["", " ", "-1", "0", "nan", "-inf", "two", "1e999", "é", "[]", "None", "-", "--", "a\nb", "9" * 400, "0x10"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good run and with all kinds of bad ones."""
    root = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("DUALTEMP_DATA", str(root / "cache"))
        torch.set_num_threads(1)
        assert main([*TRAIN, "--out", "good"]) == 0
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(root / "photo.png")
    (root / "note.txt").write_text("not an image")
    (root / "empty").mkdir()
    (root / "broken").mkdir()
    (root / "broken" / "a.jpg").write_bytes(b"\xff\xd8\xff no picture")
    (root / "damaged.npz").write_bytes(b"PK\x03\x04 no archive")
    np.savez(root / "shapeless.npz", x=np.zeros(3))
    configs = {
        "garbage": b"{[ no: yaml",
        "binary": bytes(range(256)),
        "listed": b"- method: simco\n",
        "unknown": b"data: digits\nmetod: simco\n",
        "typed": b"data: digits\nepochs: [1, 2]\n",
    }
    for name, content in configs.items():
        (root / name).mkdir()
        (root / name / "config.yaml").write_bytes(content)
    (root / "folder" / "config.yaml").mkdir(parents=True)
    return root


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("DUALTEMP_DATA", str(place / "cache"))
    return place


def contents(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below a folder."""
    found = ((path, path.lstat()) for path in sorted(root.rglob("*")))
    return {str(path): (s.st_size, s.st_mtime_ns if path.is_file() else 0) for path, s in found}


def refused(words: list[str], root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused; returns the one line that it says."""
    before = contents(root)
    assert main(words) == 2, words
    told = capsys.readouterr().err
    assert told.startswith("dualtemp: "), told
    assert told.count("\n") == 1, told
    assert len(told) < 600, told
    assert contents(root) == before, words
    return told


@pytest.mark.parametrize("run", BAD_RUNS)
@pytest.mark.parametrize("command", OF_RUN)
def test_what_is_no_run_is_refused(command: str, run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.strip() in refused([command, run, *OF_RUN[command]], here, capsys)


@pytest.mark.parametrize("data", BAD_DATA)
@pytest.mark.parametrize("command", ["train", *WITH_DATA])
def test_what_holds_no_images_is_refused(
    command: str, data: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--out", "new"] if command == "train" else [command, "good", *OF_RUN[command]]
    refused([*words, "--data", data], here, capsys)


@pytest.mark.parametrize("command", ["embed", "search", "near-duplicates", "evaluate", "export", "explore", "analyze"])
@pytest.mark.parametrize("harm", ["removed", "cut", "garbage", "another"])
def test_spoiled_weights_and_checkpoints_are_refused(
    command: str, harm: str, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(here / "good", tmp_path / "run")
    for path in (run / "backbone.safetensors", *(run / "checkpoints").iterdir()):
        if harm == "removed":
            path.unlink()
        elif harm == "cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        elif harm == "garbage":
            path.write_bytes(b"\x80\x04 garbage")
        else:
            path.write_bytes((here / "photo.png").read_bytes())
    refused([command, str(run), *OF_RUN[command]], tmp_path, capsys)


@pytest.mark.parametrize("command", ["resume", "report", "explore", "analyze"])
@pytest.mark.parametrize("method", ["moco", "byol", "supervised"])
def test_the_checkpoint_of_another_framework_is_refused(
    command: str, method: str, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, words = here.parent / f"{here.name}-{method}", {"moco": ["--dictionary-size", "64"]}
    if not other.exists():
        assert main([*TRAIN, "--method", method, *words.get(method, []), "--out", str(other)]) == 0
    for number, (settings_of, checkpoint_of) in enumerate(((here / "good", other), (other, here / "good"))):
        run = shutil.copytree(settings_of, tmp_path / str(number))
        shutil.rmtree(run / "checkpoints")
        shutil.copytree(checkpoint_of / "checkpoints", run / "checkpoints")
        if command == "report":  # the rest of the page needs no checkpoint
            assert main([command, str(run)]) == 0
            told = capsys.readouterr().err
            assert told.count("\n") == 1, told
        else:
            told = refused([command, str(run), *OF_RUN[command]], tmp_path, capsys)
        assert f"the newest checkpoint of {run} is of another run" in told


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_flag_is_refused_by_every_command(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {
        "train": ["--out", "x"],
        "analyze": ["good", "entropy"],
        "search": ["good", "photo.png"],
        "embed": ["good", "--out", "x.npz"],
        "studio": ["good"],
        "grid": ["grid.yaml"],
        "index": ["e.npz", "--out", "x.index"],
    }
    needed = words.get(command, ["good"] if command in OF_RUN else [])
    assert "--no-such-flag" in refused([command, *needed, "--no-such-flag"], here, capsys)


@pytest.mark.parametrize("command", [*OF_RUN, "train", "data", "reproduce"])
@settings(max_examples=25)
@given(words=st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=8)), max_size=3))
def test_any_words_give_one_line_or_an_answer(
    command: str, words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "-h" in words:
        return
    before = contents(here)
    code = main([command, *words])
    told = capsys.readouterr().err
    assert code in (0, 2)
    if code == 2:
        assert told.startswith("dualtemp: ")
        assert told.count("\n") == 1
        assert contents(here) == before


@settings(max_examples=150)
@given(name=st.sampled_from(sorted(set(setting_names()) - {"data"})), value=st.sampled_from(NASTY))
def test_a_nasty_value_of_any_setting_is_refused_or_trains(
    name: str, value: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(here)
    code = main([*TRAIN, "--out", "new", f"--{name.replace('_', '-')}={value}"])
    told = capsys.readouterr().err
    assert code in (0, 2)
    if code == 2:
        assert told.startswith("dualtemp: ")
        assert told.count("\n") == 1
        assert "pydantic" not in told
        if (here / "new").exists():  # a run that began and could not go on is kept, with its reason
            assert (here / "new" / "trouble.txt").read_text().strip()
    shutil.rmtree(here / "new", ignore_errors=True)
    assert contents(here) == before


@pytest.mark.parametrize(
    "words",
    [
        ["analyze", "good", "entropie"],
        ["analyze", "good", "entropy", "--taus", "0"],
        ["analyze", "good", "entropy", "--taus", "nan"],
        ["analyze", "good", "entropy", "--sizes", "-4"],
        ["analyze", "good", "entropy", "--out", "x.docx"],
        ["evaluate", "good", "--only", "knn,prob"],
        ["evaluate", "good", "--fine-tune-epochs", "0"],
        ["embed", "good", "--out", "x.doc"],
        ["embed", "good", "--out", "photo.png/x.npz"],
        ["embed", "good", "--out", "x.npz", "--batch", "0"],
        ["embed", "good", "--out", "x.npz", "--device", "abacus"],
        ["search", "good", "missing.png"],
        ["search", "good", "note.txt"],
        ["search", "good", "photo.png", "-k", "0"],
        ["search", "good", "photo.png", "--embeddings", "note.txt"],
        ["near-duplicates", "good", "--threshold", "2"],
        ["near-duplicates", "good", "--threshold", "nan"],
        ["near-duplicates", "good", "--embeddings", "damaged.npz"],
        ["export", "good", "--format", "tensorflow"],
        ["export", "good", "--out", "photo.png"],
        ["explore", "good", "--out", "photo.png/x.html"],
        ["report", "good", "--no-pictures", "--out", "photo.png/x.html"],
        ["report", "good", "missing"],
        ["runs", "missing"],
        ["runs", "--sort", "beauty"],
        ["clean", "missing"],
        ["clean", "--yes"],
        ["clean", "--older-than", "3"],
        ["clean", "--caches", "--older-than", "nan"],
        ["clean", "--caches", "--older-than", "-1"],
        ["clean", "--caches", "--older-than", "week"],
        ["clean", "--checkpoints"],
        ["clean", "--checkpoints", "empty"],
        ["clean", "--checkpoints", "good", "missing", "--yes"],
        ["resume", "good", "--epochs", "0"],
        ["resume", "good", "--threads", "0"],
        ["resume", "good", "--checkpoint-minutes", "nan"],
        ["train", "--data", "digits", "--out", "new", "--log", "paper"],
        ["demo", "--out", "photo.png"],
        ["demo", "--data", "missing"],
        ["paper", "T-nothing"],
        ["reproduce", "T-reverse", "--jobs", "0"],
    ],
    ids=" ".join,
)
def test_a_bad_value_of_a_flag_is_refused(words: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(words, here, capsys)
