"""Normalization: listed constants, else the data's own; a run keeps what it began with."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dualtemp
from dualtemp.data.augment.views import Views
from dualtemp.data.grayscale import gray_in_color
from dualtemp.data.images import FileImages, ImageSet
from dualtemp.data.normalization import CIFAR10, OF_SETS, earlier_normalization, measured, normalization
from dualtemp.data.sources.opening import open_source
from dualtemp.encoder.encoder import run_encoder
from dualtemp.errors import UserError
from dualtemp.grids.results import read_data_facts
from dualtemp.runs.folder import RunFolder
from dualtemp.training.run_data import training_data


def test_named_sets_have_their_own_and_other_rgb_images_are_measured():
    rgb = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    assert normalization("svhn", rgb) == earlier_normalization("svhn", rgb) == OF_SETS["svhn"]
    assert normalization("somebody's photographs", rgb) == ((0.0,) * 3, (1.0,) * 3)
    assert earlier_normalization("somebody's photographs", rgb) == CIFAR10
    for mean, std in OF_SETS.values():
        assert len(mean) == len(std)
        assert all(0 < value < 1 for value in (*mean, *std))


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_other_channel_counts_are_measured(channels):
    pixels = torch.randint(0, 256, (400, channels, 60, 70), dtype=torch.uint8)
    pixels[:, 0] = pixels[:, 0] // 3
    values = pixels.double() / 255
    for name in ("anything", "cifar10"):  # a listed name does not help a set with another number of channels
        mean, std = normalization(name, pixels)
        np.testing.assert_allclose(mean, values.mean((0, 2, 3)), atol=6e-5)
        np.testing.assert_allclose(std, values.std((0, 2, 3), correction=0), atol=6e-5)


def test_a_channel_that_never_changes_does_not_divide_by_zero():
    assert measured(torch.full((3, 2, 4, 4), 51, dtype=torch.uint8)) == ((0.2, 0.2), (1.0, 1.0))


def test_files_are_measured_and_unreadable_ones_passed_over(tmp_path: Path):
    levels = np.random.default_rng(0).integers(0, 256, (3, 9, 8), dtype=np.uint8)
    for i, level in enumerate(levels):
        Image.fromarray(level).save(tmp_path / f"{i}.png")
    (tmp_path / "3.png").write_bytes(b"broken")
    mean, std = measured(FileImages(tmp_path, ("0.png", "1.png", "2.png", "3.png"), channels=1))
    np.testing.assert_allclose(mean, [levels.mean() / 255], atol=6e-5)
    np.testing.assert_allclose(std, [levels.std() / 255], atol=6e-5)
    with pytest.raises(UserError, match="no image can be read"):
        measured(FileImages(tmp_path, ("3.png",), channels=1))


@pytest.mark.slow
def test_photographs_in_colour_are_measured_at_about_their_views_size(tmp_path: Path):
    for i in range(3):
        coarse = np.random.default_rng(i).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((1600, 1200)).save(tmp_path / f"{i}.png")
    files = FileImages(tmp_path, ("0.png", "1.png", "2.png"))
    values = np.stack([np.asarray(files.open(i)) for i in range(3)]) / 255
    mean, std = measured(files)
    np.testing.assert_allclose(mean, values.mean((0, 1, 2)), atol=2e-3)
    np.testing.assert_allclose(std, values.std((0, 1, 2)), atol=5e-3)


@pytest.mark.parametrize("kind", ["npz", "files"])
def test_a_new_run_is_normalised_by_its_training_images_and_an_old_one_as_it_was(kind: str, tmp_path: Path):
    images = np.random.default_rng(0).integers(0, 100, (40, 12, 12, 3), dtype=np.uint8)
    source = tmp_path / "dark.npz"
    np.savez(source, images=images, labels=np.arange(40) % 2)
    if kind == "files":
        source = tmp_path / "dark"
        for i, image in enumerate(images):
            (source / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).resize((12 + i % 2, 12)).save(source / "ab"[i % 2] / f"{i}.png")
    brief = {"epochs": 1, "batch": 8, "backbone": "resnet_mini", "image_size": 8, "quiet": True, "page": False}
    dualtemp.train(data=str(source), out=tmp_path / "run", workers=0, **brief)
    run = RunFolder(tmp_path / "run")
    made = run.read_environment()
    splits = open_source(source)
    assert (tuple(made["images"]["mean"]), tuple(made["images"]["std"])) == measured(splits.train.pixels)
    assert run_encoder(run.path, "cpu").views.mean == tuple(made["images"]["mean"])
    assert read_data_facts(str(source)).normalised_as == "itself"
    # A run of before has CIFAR-10's written down, or nothing.
    chosen, (mean, std) = run.settings(), CIFAR10
    for images_then in ({**made["images"], "mean": list(mean), "std": list(std)}, None):
        before = {**{name: value for name, value in made.items() if name != "split"}, "images": images_then}
        run.environment.write_text(json.dumps(before))
        assert training_data(chosen, splits, run.read_environment()).views.mean == mean
        assert run_encoder(run.path, "cpu").views.std == std
    assert dualtemp.resume(run.path, 2, quiet=True, page=False, workers=0)["epoch"] == 2
    assert run.read_environment()["images"] is None  # and stays as it is


@pytest.mark.parametrize("recipe", ["paper", "mocov2", "simclr", "byol"])
def test_hue_and_saturation_do_nothing_to_grey_images_in_three_channels(recipe: str):
    grey = torch.randint(0, 256, (32, 1, 16, 16), dtype=torch.uint8).expand(-1, 3, -1, -1).contiguous()
    views = Views(recipe, 16, 0, (0.0,) * 3, (1.0,) * 3)
    for view in (0, 1):
        seen = views(grey, torch.arange(32), 0, view)
        assert (seen[:, 1:] == seen[:, :1]).all()


def test_grey_images_in_three_channels_are_told_from_colour(tmp_path: Path):
    level = torch.randint(0, 256, (40, 1, 20, 20), dtype=torch.uint8)
    grey = level.expand(-1, 3, -1, -1).clone()
    assert gray_in_color(ImageSet("x-rays", grey))
    assert not gray_in_color(ImageSet("digits", level, channels=1))
    for i, image in enumerate(grey):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / f"{i:02}.jpg")
    files = FileImages(tmp_path, tuple(f"{i:02}.jpg" for i in range(40)))
    assert gray_in_color(ImageSet("x-rays", files))
    grey[39, 0, 5, 5] ^= 128
    assert not gray_in_color(ImageSet("one in colour", grey))
    Image.new("RGB", (20, 20), (200, 10, 10)).save(tmp_path / "07.jpg")
    assert not gray_in_color(ImageSet("one in colour", files))
