"""A folder of somebody's own: settings that fit it, said before the run; files that are broken or go away meanwhile."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from command_processes import Commands, Ended, until
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dualtemp.config import Settings, complete, given_settings, settings
from dualtemp.data.augment.views import Views
from dualtemp.data.images import FileImages
from dualtemp.data.sources.opening import open_source
from dualtemp.errors import UserError
from dualtemp.frameworks import build_framework
from dualtemp.models import build_backbone
from dualtemp.runs.folder import RunFolder
from dualtemp.training.launch import ExecutionOptions
from dualtemp.training.own_images import facts_of, paragraph, with_sensible_settings
from dualtemp.training.resume import resume_run
from dualtemp.training.run_data import image_size, training_data
from dualtemp.training.run_encoder import RunEncoder
from dualtemp.training.sensible_settings import ROUND, Facts, sensible
from dualtemp.training.start import start
from dualtemp.training.timing import expected_seconds

QUICK = ("--image-size", "16", "--batch", "8", "--workers", "0", "--evaluate-every", "5")


def folder(root: Path, count: int = 40, size: tuple[int, int] = (40, 30), classes: int = 2) -> Path:
    for number in range(count):
        path = root / f"class{number % classes}" / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = np.random.default_rng(number).integers(0, 256, (3, 4, 3), dtype=np.uint8)
        width, height = size[0] + number % 3, size[1] + number % 3  # of several sizes, so that they stay in files
        Image.fromarray(coarse).resize((width, height)).save(path)
    return root


def test_images_with_a_label_are_counted_beside_those_without(tmp_path: Path) -> None:
    folder(tmp_path / "train", 6)
    folder(tmp_path / "test", 4)
    folder(tmp_path / "unlabelled", 30)
    splits = open_source(tmp_path)
    assert facts_of(splits.pretraining, splits)[0] == Facts(36, 2, 31, True, labeled=6)


def config(run: Path) -> dict[str, Any]:
    return yaml.safe_load((run / "config.yaml").read_text())


@given(
    st.builds(Facts, st.integers(2, 10**8), st.integers(0, 1000), st.integers(1, 10_000), in_files=st.booleans()),
    st.sampled_from(["cpu", "cuda", "mps"]),
    st.fixed_dictionaries(
        {},
        optional={
            "batch": st.integers(2, 4096),
            "epochs": st.integers(1, 1000),
            "image_size": st.integers(8, 512),
            "backbone": st.sampled_from(["resnet18", "vit_tiny"]),
            "method": st.sampled_from(["moco", "simco", "byol"]),
            "optimizer": st.sampled_from(["sgd", "adamw"]),
        },
    ),
)
def test_for_any_images_the_settings_are_valid_fit_the_set_and_leave_alone_what_was_given(
    facts: Facts, device: str, chosen_by_user: dict[str, Any]
) -> None:
    found = sensible(facts, device, chosen_by_user)
    assert found.keys().isdisjoint(chosen_by_user)
    made = settings({"data": "x", **found, **chosen_by_user})
    assert made.image_size is not None
    if "batch" in found:
        assert made.batch <= max(2, facts.images // 4)
        assert made.batch & (made.batch - 1) == 0
    if "epochs" in found:
        assert made.epochs in ROUND
    if "image_size" in found and facts.in_files:
        assert made.image_size <= max(8, facts.side)  # never enlarged
    if "lr" in found:
        assert made.lr * made.batch / 256 == pytest.approx(0.06)
    assert ("lr" in found) == (made.optimizer == "sgd")
    assert ("dictionary_size" in found) == (made.method == "moco")
    assert 1 <= made.evaluate_every <= made.epochs


@pytest.mark.parametrize(
    ("facts", "device", "expected"),
    [
        (Facts(800, 10, 224, True), "cpu", {"image_size": 128, "backbone": "resnet_mini", "batch": 64, "epochs": 200}),
        (Facts(800, 10, 224, True), "cuda", {"image_size": 224, "backbone": "resnet18", "batch": 128, "epochs": 400}),
        (Facts(90, 0, 3000, True), "cpu", {"image_size": 128, "batch": 16, "epochs": 400}),
        (Facts(5_000_000, 0, 500, True), "cpu", {"image_size": 128, "batch": 64, "epochs": 10}),
        (Facts(1_000_000, 0, 500, True), "mps", {"image_size": 224, "batch": 256, "epochs": 20}),
        (Facts(25_000, 100, 32, False), "cpu", {"image_size": 32, "batch": 64, "epochs": 40, "knn": "auto"}),
        (Facts(400, 2, 50, True), "cuda", {"image_size": 48}),
        (Facts(3, 0, 8, False), "cpu", {"image_size": 8, "batch": 2}),
    ],
)
def test_the_rules_of_the_documentation(facts: Facts, device: str, expected: dict[str, Any]) -> None:
    found = sensible(facts, device, {})
    assert {name: found[name] for name in expected} == expected


def test_more_images_never_mean_more_epochs() -> None:
    counts = [2**power for power in range(1, 24)]
    for device in ("cpu", "cuda"):
        epochs = [sensible(Facts(count, 0, 224, True), device, {})["epochs"] for count in counts]
        assert epochs == sorted(epochs, reverse=True)
        assert (epochs[0], epochs[-1]) == (400, 10)


def test_named_sets_keep_the_papers_recipe() -> None:
    given_ = settings({"data": "digits"})
    chosen, found = with_sensible_settings(given_, open_source("digits"), torch.device("cpu"))
    assert (chosen, found) == (given_, None)


def test_what_was_given_is_known_from_what_was_left_to_its_default() -> None:
    given_ = settings({"data": "x", "epochs": 200, "subset": None})
    assert given_settings(given_) == {"data": "x", "epochs": 200}
    whole = complete(given_, 8)
    assert given_settings(settings(whole.model_dump(exclude_none=True))).keys() >= {"lr", "batch", "backbone"}


class SlowTeacher(torch.nn.Module):
    """Takes 20 ms an image, and more on a busy machine."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02 * len(images))
        return images.mean((2, 3))


def started(folder: Path) -> RunEncoder:
    """An encoder as a teacher would be."""
    chosen = complete(settings({"data": str(folder), "backbone": "resnet_mini", "image_size": 24}), 24)
    views = Views("paper", 24, 0, (0.5,) * 3, (0.2,) * 3)
    backbone = build_backbone("resnet_mini", 24, 3, seed=0)
    return RunEncoder(folder, chosen, backbone, views, 3, (), torch.device("cpu"), "")


def test_the_paragraph_tells_what_was_found_what_was_chosen_and_how_long_it_takes(tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    (root / "class0" / "000.png").write_bytes(b"")
    (root / "IMG.heic").write_bytes(b"x")
    splits, device = open_source(root), torch.device("cpu")
    chosen, found = with_sensible_settings(settings({"data": str(root), "lr": 0.1}), splits, device)
    assert found is not None
    assert chosen.lr == 0.1
    chosen = complete(chosen, image_size(splits))
    data = training_data(chosen, splits)
    method = build_framework(chosen, 3, data.classes)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    began = time.process_time()
    seconds = expected_seconds(chosen, data, method, device, 0)
    assert time.process_time() - began < 20
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())
    assert 0 < seconds < 3600
    teacher = replace(started(root), backbone=SlowTeacher())
    assert expected_seconds(chosen, data, method, device, 0, teacher) > 0.02 * len(data.images), "it looks at all once"
    text = paragraph(found, chosen, splits, device, 3.2 * 3600)
    for part in (
        "36 images to learn from, 4 to measure with",
        "a tenth held out",
        "2 classes",
        "40 x 30 to 42 x 32 px",
        "2 unreadable so far",
        "resnet_mini",
        "views of 24 px",
        "batches of 8",
        "400 epochs",
        "about 3 h 12 min",
        "--epochs 125: about an hour",
    ):
        assert part in text
    assert "lr 0" not in text
    alone = replace(splits, train=replace(splits.train, classes=("holiday",)))
    assert "; 1 class; " in paragraph(found, chosen, alone, device, 60)


def train(commands: Commands, data: Path, out: Path, *words: str) -> Ended:
    return commands.run("train", "--data", data, *QUICK, *words, "--out", out)


@pytest.mark.slow
def test_a_folder_alone_is_enough_and_its_config_reruns_the_run(commands: Commands, tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    ended = commands.run("train", "--data", root, "--epochs", "2", "--workers", "0", "--out", tmp_path / "a")
    assert ended.code == 0, ended.err
    said = " ".join(ended.out.split())
    assert said.startswith(f"Found in {root}: 36 images to learn from")
    assert "Expected time: about" in said
    made = config(tmp_path / "a")
    assert {name: made[name] for name in ("image_size", "backbone", "batch", "epochs")} == {
        "image_size": 24,
        "backbone": "resnet_mini",
        "batch": 8,
        "epochs": 2,
    }
    again = commands.run("train", "--config", tmp_path / "a" / "config.yaml", "--workers", "0", "--out", tmp_path / "b")
    assert again.code == 0, again.err
    assert config(tmp_path / "b") == made
    assert (tmp_path / "a/backbone.safetensors").read_bytes() == (tmp_path / "b/backbone.safetensors").read_bytes()
    quiet = commands.run("train", "--data", root, "--epochs", "1", "--workers", "0", "--quiet", "--out", tmp_path / "c")
    assert (quiet.code, quiet.out) == (0, "")


def test_broken_files_are_counted_and_named_at_the_end_and_all_of_them_in_the_run(
    commands: Commands, tmp_path: Path
) -> None:
    root = folder(tmp_path / "photos")
    names = [f"class1/{number:03}.png" for number in range(1, 16, 2)]
    for name in names:
        (root / name).write_bytes(b"broken")
    (root / "class0" / "IMG.heic").write_bytes(b"x")
    ended = train(commands, root, tmp_path / "run", "--epochs", "3")
    assert ended.code == 0, ended.err
    listed = (tmp_path / "run" / "unreadable.txt").read_text().splitlines()
    assert "class0/IMG.heic: Pillow does not read this format; convert it to JPEG or PNG" in listed
    assert {line.split(": ")[0] for line in listed} - {"class0/IMG.heic"} <= set(names)
    assert len(listed) >= 6
    assert ended.err.count("\n") == 1
    assert ended.err.startswith(f"dualtemp: {len(listed)} files could not be read")
    assert str(tmp_path / "run" / "unreadable.txt") in ended.err


def epochs_of(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.slow
def test_files_that_go_change_and_come_while_training_do_not_end_the_run(commands: Commands, tmp_path: Path) -> None:
    root, run = folder(tmp_path / "photos"), tmp_path / "run"
    command = commands.start("train", "--data", root, *QUICK, "--epochs", "15", "--out", run)
    assert until(command, (run / "metrics.jsonl").exists), command.err.read_text()
    for number in range(0, 20):
        next(root.glob(f"*/{number:03}.png")).unlink()
    for number in range(20, 25):
        next(root.glob(f"*/{number:03}.png")).write_bytes(b"garbage")
    folder(tmp_path / "photos", 45)  # and some come, or come back
    next(root.glob("*/007.png")).unlink()
    ended = command.wait()
    assert ended.code == 0, ended.err
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 15
    refused = commands.run("resume", run, "--epochs", "16")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "the data are not those" in refused.err
    assert f"--init {run}" in refused.err


def test_a_broken_file_among_those_to_measure_with_is_named_too(commands: Commands, tmp_path: Path) -> None:
    root = folder(tmp_path / "photos")
    test = open_source(root).test
    assert test is not None
    assert isinstance(test.pixels, FileImages)
    test.pixels.path(0).write_bytes(b"broken")
    ended = train(commands, root, tmp_path / "run", "--epochs", "1")
    assert ended.code == 0, ended.err
    assert (tmp_path / "run" / "unreadable.txt").read_text().startswith(f"{test.pixels.names[0]}: not an image")


class TakesAway:
    """A watch that takes the folder away after a step of an epoch, and remembers the notes."""

    def __init__(self, root: Path, epoch: int, step: int) -> None:
        self.root, self.when, self.notes = root, (epoch, step), []

    def begin(self, path: Path, chosen: Settings) -> None: ...

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        if (epoch, step) == self.when:
            self.root.rename(self.root.with_name("away"))

    def epoch(self, metrics: dict[str, Any]) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None: ...


@pytest.mark.parametrize(("step", "saved"), [(3, 3), (9, 9)])  # in the middle of the first epoch, and at its end
def test_what_was_learned_before_the_folder_went_away_is_kept(tmp_path: Path, step: int, saved: int) -> None:
    root, run = folder(tmp_path / "photos"), tmp_path / "run"
    watch = TakesAway(root, 0, step)
    chosen = settings({"data": str(root), "image_size": 16, "batch": 4, "epochs": 3, "backbone": "resnet_mini"})
    with pytest.raises(UserError) as raised:
        start(chosen, run, ExecutionOptions(device="cpu", workers=0, quiet=True), watch)
    assert f"{root} is gone: put it back; the last good checkpoint is step-{saved:010d}.ckpt" in str(raised.value)
    assert watch.notes == ([f"epoch 1 is not measured: {root} is gone: put it back"] if step == 9 else [])
    (tmp_path / "away").rename(root)
    resume_run(run, None, ExecutionOptions(device="cpu", workers=0, quiet=True))
    assert [line["epoch"] for line in RunFolder(run).history()] == [1, 2, 3]


@pytest.mark.slow
def test_a_folder_that_is_taken_away_ends_in_one_line_and_goes_on_when_it_is_back(
    commands: Commands, tmp_path: Path
) -> None:
    root, run = folder(tmp_path / "photos"), tmp_path / "run"
    command = commands.start("train", "--data", root, *QUICK, "--epochs", "60", "--out", run)
    assert until(command, lambda: epochs_of(run) >= 2), command.err.read_text()
    root.rename(tmp_path / "away")
    ended = command.wait()
    assert ended.code == 2
    last = ended.err.splitlines()[-1]
    assert f"{root} is gone: put it back" in last
    assert "the last good checkpoint is step-" in last
    assert f"`dualtemp resume {run}`" in last
    assert "Traceback" not in ended.err
    (tmp_path / "away").rename(root)
    epochs = len((run / "metrics.jsonl").read_text().splitlines())
    again = commands.run("resume", run, "--epochs", str(epochs + 2))
    assert again.code == 0, again.err
    assert [json.loads(line)["epoch"] for line in (run / "metrics.jsonl").read_text().splitlines()] == list(
        range(1, epochs + 3)
    )


def test_a_run_does_not_go_on_with_as_many_images_of_other_names(commands: Commands, tmp_path: Path) -> None:
    root, run = folder(tmp_path / "photos"), tmp_path / "run"
    assert train(commands, root, run, "--epochs", "1").code == 0
    (root / "class0" / "002.png").rename(root / "class0" / "902.png")
    refused = commands.run("resume", run, "--epochs", "2")
    assert refused.code == 2
    assert "still has 36 images, but others" in refused.err or "had 36 images" in refused.err
    assert isinstance(Settings(**config(run)), Settings)
