"""Normalisation: listed constants, CIFAR-10's for other RGB sets, else the data's own."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dualtemp.data.images import FileImages
from dualtemp.data.normalisation import CIFAR10, OF_SETS, measured, normalisation
from dualtemp.errors import UserError


def test_named_sets_have_their_own_and_other_rgb_images_have_cifar10s():
    rgb = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    assert normalisation("svhn", rgb) == OF_SETS["svhn"]
    assert normalisation("somebody's photographs", rgb) == CIFAR10
    for mean, std in OF_SETS.values():
        assert len(mean) == len(std)
        assert all(0 < value < 1 for value in (*mean, *std))


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_other_channel_counts_are_measured(channels):
    pixels = torch.randint(0, 256, (400, channels, 60, 70), dtype=torch.uint8)
    pixels[:, 0] = pixels[:, 0] // 3
    values = pixels.double() / 255
    for name in ("anything", "cifar10"):  # a listed name does not help a set with another number of channels
        mean, std = normalisation(name, pixels)
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
