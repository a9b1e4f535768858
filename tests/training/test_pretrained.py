"""Runs that begin from a pretrained start: what they write down and carry on, and what they are compared with."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from drawn_photos import draw_photos
from local_starts import INPUT, NETWORK, timm_folder, write_timm_folder
from PIL import Image
from trained_encoders import photos

from dualtemp.analysis.analyzed_data import open_analyzed_data
from dualtemp.api import evaluate, resume, train
from dualtemp.config import ADDED_LATER, from_yaml
from dualtemp.encoder.encoder import run_encoder
from dualtemp.errors import UserError
from dualtemp.grids.results import DataFacts, key
from dualtemp.models.model_input import ModelInput
from dualtemp.runs.folder import RunFolder
from dualtemp.training.pretrained import find_start, input_of_run

__all__ = ["photos", "timm_folder"]  # fixtures

QUIET: dict[str, Any] = {"device": "cpu", "workers": 0, "threads": 1, "quiet": True, "page": False}
SMALL: dict[str, Any] = {**QUIET, "batch": 8, "image_size": 40, "lr": 0.01}


@pytest.fixture(scope="module")
def begun(photos: Path, timm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch from the start; not to be written into."""
    path = tmp_path_factory.mktemp("runs") / "begun"
    train(data=str(photos), init=str(timm_folder), out=path, epochs=1, **SMALL)
    return path


def test_a_run_writes_down_network_content_and_input_of_its_start(begun: Path, timm_folder: Path) -> None:
    config, start = yaml.safe_load((begun / "config.yaml").read_text()), find_start(str(timm_folder))
    assert config["backbone"] == NETWORK
    assert config["init_content"] == start.content
    images = json.loads((begun / "environment.json").read_text())["images"]
    assert (images["mean"], images["std"]) == (INPUT["mean"], INPUT["std"])
    encoder = run_encoder(begun, "cpu")
    views = encoder.views
    assert (views.interpolation, views.crop, views.shorter_side) == ("bilinear", 0.96, int(40 / 0.96))
    kept = safetensors.torch.load_file(begun / "start.safetensors")
    assert all(torch.equal(value, start.weights[name]) for name, value in kept.items())
    assert input_of_run(RunFolder(begun)) == ModelInput((0.4, 0.5, 0.6), (0.2, 0.25, 0.3), 40, "bilinear", 0.96)


def test_a_start_is_part_of_a_results_key_and_no_start_is_not(begun: Path) -> None:
    chosen, facts = RunFolder(begun).settings(), DataFacts("0", 32, 10)
    nothing = chosen.model_copy(update={"init_content": None, "init": None})
    assert key(chosen, facts) != key(nothing, facts)
    assert key(chosen.model_copy(update={"init": "/elsewhere"}), facts) == key(chosen, facts)
    assert ADDED_LATER["init_content"] is None


def test_a_config_of_before_opens_without_the_new_settings(begun: Path, tmp_path: Path) -> None:
    old = {name: value for name, value in from_yaml(begun / "config.yaml").items() if name != "init_content"}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(old))
    assert RunFolder(tmp_path).settings().init_content is None


def test_going_on_needs_the_start_no_more_and_ends_with_the_same_bits(photos: Path, tmp_path: Path) -> None:
    start = write_timm_folder(tmp_path / "start")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(data=str(photos), init=str(start), out=whole, epochs=2, **SMALL)
    train(data=str(photos), init=str(start), out=stopped, epochs=2, **SMALL)
    for file in (stopped / "checkpoints").iterdir():  # as if it had been killed before the first one
        file.unlink()
    (stopped / "metrics.jsonl").write_text("")
    (stopped / "backbone.safetensors").unlink()
    shutil.rmtree(start)
    resume(stopped, **QUIET)
    assert (stopped / "backbone.safetensors").read_bytes() == (whole / "backbone.safetensors").read_bytes()


def test_a_run_from_a_run_from_a_start_keeps_the_input(begun: Path, photos: Path, tmp_path: Path) -> None:
    train(data=str(photos), init=str(begun), out=tmp_path / "next", epochs=1, **{**SMALL, "image_size": None})
    encoder = run_encoder(tmp_path / "next", "cpu")
    assert encoder.settings.backbone == NETWORK
    assert (encoder.views.size, list(encoder.views.mean), encoder.views.crop) == (40, INPUT["mean"], 0.96)


@pytest.mark.parametrize(
    "content",
    [None, '{"images": ', '{"start": {}}', '{"start": {}, "images": {"channels": 3, "mean": [0.5], "std": [1]}}'],
)
def test_without_its_environment_a_run_from_a_start_is_not_given_other_images(
    content: str | None, begun: Path, photos: Path, tmp_path: Path
) -> None:
    run = RunFolder(shutil.copytree(begun, tmp_path / "run"))
    run.environment.unlink()
    if content is not None:
        run.environment.write_text(content)
    metrics = run.metrics.read_bytes()
    for use in (
        lambda: run_encoder(run.path, "cpu"),
        lambda: open_analyzed_data(run, run.settings()),
        lambda: resume(run.path, epochs=2, **QUIET),
        lambda: train(data=str(photos), init=str(run.path), out=tmp_path / "next", epochs=1, **SMALL),
    ):
        with pytest.raises(UserError, match=r"environment\.json is missing or damaged: .* put it back$"):
            use()
    assert run.metrics.read_bytes() == metrics
    assert not (tmp_path / "next").exists()


def test_gray_images_reach_a_network_of_three_channels(timm_folder: Path, tmp_path: Path) -> None:
    for path in draw_photos(tmp_path / "gray", 12):
        Image.open(path).convert("L").save(path)
    train(data=str(tmp_path / "gray"), init=str(timm_folder), out=tmp_path / "run", epochs=1, **SMALL)
    assert run_encoder(tmp_path / "run", "cpu").channels == 3
    resume(tmp_path / "run", epochs=2, **QUIET)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"backbone": "resnet18"},
            f"backbone resnet18 contradicts --init .*, which is a {NETWORK}: leave --backbone out",
        ),
        ({"init_content": "0" * 32}, "has other content"),
    ],
)
def test_what_contradicts_the_start_is_refused_and_leaves_nothing(
    given: dict[str, Any], said: str, photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=said):
        train(data=str(photos), init=str(timm_folder), out=tmp_path / "run", **given, **QUIET)
    assert not (tmp_path / "run").exists()


def test_none_declines_a_start(tmp_path: Path) -> None:
    train(
        data="digits",
        init="none",
        backbone="resnet_mini",
        subset=64,
        epochs=1,
        out=tmp_path / "run",
        **{**QUIET, "batch": 32},
    )
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (config["init"], config["init_content"]) == (None, None)
    assert not (tmp_path / "run" / "start.safetensors").exists()


def test_evaluation_has_the_frozen_start_in_its_own_input(
    begun: Path, photos: Path, timm_folder: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(begun, tmp_path / "run")
    of_run = evaluate(run, only="knn", device="cpu", workers=0, quiet=True)["measured"]
    (frozen,) = (row for row in of_run if row["encoder"] == "start, frozen")
    alone = evaluate(timm_folder, photos, only="knn", device="cpu", workers=0, quiet=True)
    (itself,) = (row for row in alone["measured"] if row["encoder"] == "start, frozen")
    assert frozen["top1"] == itself["top1"]
    assert sum(frozen["pairs"][0]) <= frozen["images"]
    assert {file.name for file in timm_folder.iterdir()} == {"config.json", "model.safetensors"}  # nothing was added
    with pytest.raises(UserError, match="has no images of its own"):
        evaluate(timm_folder, only="knn")
    with pytest.raises(UserError, match="is measured as it is"):
        evaluate(timm_folder, photos, only="fine-tune")
