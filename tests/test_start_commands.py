"""Commands that take a run take a pretrained start as well: the first useful result needs no training."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from local_starts import INPUT, hub_cache, timm_folder, timm_network
from PIL import Image
from trained_encoders import own_cache, photos

from dualtemp.cli import main

__all__ = ["hub_cache", "own_cache", "photos", "timm_folder"]  # fixtures


def reference_features(path: Path) -> np.ndarray:
    """What timm's network makes of a photograph that Pillow prepares as config.json says."""
    image, size, side = Image.open(path).convert("RGB"), 96, int(96 / INPUT["crop_pct"])
    width, height = (int(side * each / min(image.size)) for each in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    pixels = np.array(image.crop((left, top, left + size, top + size))) / 255
    images = torch.from_numpy((pixels - INPUT["mean"]) / INPUT["std"]).permute(2, 0, 1)[None].float()
    with torch.no_grad():
        network = timm_network()
        return network.forward_head(network.forward_features(images), pre_logits=True)[0].numpy()  # pyright: ignore


def test_embed_gives_the_starts_own_features(photos: Path, timm_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.npz"
    assert main(["embed", str(timm_folder), "--data", str(photos), "--out", str(out), "--workers", "0"]) == 0
    found = np.load(out)
    for name in found["names"][[0, 12, 30]]:
        wanted = reference_features(photos / str(name))
        row = found["features"][list(found["names"]).index(name)]
        cosine = row @ wanted / np.linalg.norm(row) / np.linalg.norm(wanted)
        assert cosine > 0.999, name  # Pillow and torch differ by a level of 255 here and there


def test_search_and_near_duplicates_and_explore_work_on_a_start(
    photos: Path, timm_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    photo = next((photos / "test" / "cat").iterdir())
    copy = shutil.copy(photo, tmp_path / "copy.png")  # a photograph is not found as its own neighbor
    assert main(["search", str(timm_folder), str(copy), "--data", str(photos), "-k", "1", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["photos"]
    assert answer["found"][0]["name"].endswith(photo.name)
    assert answer["found"][0]["s"] > 0.9999
    assert main(["near-duplicates", str(timm_folder), "--data", str(photos), "--json"]) == 0
    capsys.readouterr()
    assert main(["explore", str(timm_folder), "--data", str(photos), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.strip() == "explore.html"
    assert "pretrained" in (tmp_path / "explore.html").read_text()


def test_an_export_of_a_start_carries_its_input(timm_folder: Path, tmp_path: Path) -> None:
    assert main(["export", str(timm_folder), "--out", str(tmp_path / "out"), "--format", "safetensors,timm"]) == 0
    how = json.loads((tmp_path / "out" / "preprocessing.json").read_text())
    assert (how["mean"], how["std"], how["size"]) == (INPUT["mean"], INPUT["std"], 96)
    assert (how["resize"]["interpolation"], how["resize"]["shorter_side"]) == ("bilinear", 100)
    config = json.loads((tmp_path / "out" / "config.json").read_text())["pretrained_cfg"]
    assert (config["interpolation"], int(96 / config["crop_pct"])) == ("bilinear", 100)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "not trained further" in card
    assert "simco" not in card


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["embed", "timm:resnet81", "--data", "digits", "--out", "e.npz"], "did you mean"),
        (["embed", "START", "--out", "e.npz"], "has no images of its own"),
        (["export", "START"], "give one, --out FOLDER"),
        (["evaluate", "timm:resnet18", "--data", "digits"], "the Hugging Face hub does not answer"),
        (["explore", "START"], "has no images of its own"),
        (["train", "--data", "digits", "--init", "timm:nothing", "--out", "run"], "timm has no network"),
        (["train", "--data", "digits", "--init", "START", "--backbone", "resnet18", "--out", "run"], "contradicts"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str],
    said: str,
    timm_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(timm_folder) if word == "START" else word for word in words]) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1, told
    assert said in told[0]
    assert [path for path in tmp_path.iterdir() if path.name != "hub"] == []
