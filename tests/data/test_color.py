"""Colour operations: torchvision's, each image with its own factor."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dualtemp.data.augment import color
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()
from torchvision.transforms.v2 import functional as reference  # noqa: E402

REFERENCES = (
    reference.adjust_brightness,
    reference.adjust_contrast,
    reference.adjust_saturation,
    reference.adjust_hue,
)


def images(count: int, channels: int = 3, side: int = 16, seed: int = 0) -> torch.Tensor:
    """Random pixels; a third of them grey, black, white or of a pure colour, where hue is delicate."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.rand(count, channels, side, side, generator=generator)
    pixels[:, :, 0] = pixels[:, :1, 0]
    pixels[:, :, 1] = 0.0
    pixels[:, :, 2] = 1.0
    pixels[:, :, 3] = torch.randint(0, 2, (count, channels, side), generator=generator).float()
    pixels[:, :, 4] = torch.randint(0, 3, (count, channels, side), generator=generator) / 2
    return pixels


@pytest.mark.parametrize("number", range(4))
@given(factor=st.floats(0, 2), seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_each_operation_equals_torchvisions_on_float_images(number, factor, seed):
    factor = (factor - 1) / 2 if number == 3 else factor
    pixels = images(3, seed=seed)
    theirs = REFERENCES[number](pixels, factor)
    color.JITTER_OPERATIONS[number](pixels, torch.full((3,), factor))
    torch.testing.assert_close(pixels, theirs, rtol=0, atol=2e-6 if number == 3 else 1e-6)


def test_hue_is_as_near_to_the_exact_turn_as_torchvisions():
    pixels, factor = images(64, seed=5), torch.linspace(-0.5, 0.5, 64)
    exact = torch.stack([reference.adjust_hue(p.double(), float(f)) for p, f in zip(pixels, factor, strict=True)])
    color.hue_(pixels, factor)
    assert (pixels - exact).abs().max() < 2e-6


@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_blend_is_within_one_level_of_pillows_8_bit_result(number):
    levels = (images(1, seed=2) * 255).round().to(torch.uint8)
    for factor in (0.6, 1.0, 1.4):
        image = Image.fromarray(levels[0].permute(1, 2, 0).numpy())
        theirs = torch.from_numpy(np.array(REFERENCES[number](image, factor))).permute(2, 0, 1)
        ours = levels.float() / 255
        color.JITTER_OPERATIONS[number](ours, torch.tensor([factor]))
        assert ((ours[0] * 255).round() - theirs).abs().max() <= 1


def test_every_image_is_jittered_with_its_own_factors_in_its_own_order():
    orders = torch.tensor(list(itertools.permutations(range(4))) * 2)
    orders[::7] = color.NOTHING
    count = len(orders)
    generator = torch.Generator().manual_seed(0)
    factors = torch.rand(count, 4, generator=generator) * 0.8 + torch.tensor([0.6, 0.6, 0.6, -0.4])
    pixels = images(count, seed=4)
    expected = pixels.clone()
    for i in range(count):
        for number in orders[i].tolist():
            if number != color.NOTHING:
                expected[i] = REFERENCES[number](expected[i], float(factors[i, number]))
    ours = color.jitter(pixels.clone(), *color.jitter_plan(factors, orders))
    torch.testing.assert_close(ours, expected, rtol=0, atol=4e-6)  # four operations, one of them hue
    assert torch.equal(ours[::7], pixels[::7])


@pytest.mark.parametrize("channels", [1, 2, 4, 7])
def test_images_that_are_not_rgb_are_jittered_in_brightness_and_contrast_only(channels):
    orders = torch.tensor(list(itertools.permutations(range(4))))
    factors = torch.rand(24, 4, generator=torch.Generator().manual_seed(1)) + 0.5
    pixels = images(24, channels)
    expected = pixels.double()
    for i in range(24):
        for number in orders[i].tolist():
            factor = float(factors[i, number])
            if number == 0:
                expected[i] = (expected[i] * factor).clamp(0, 1)
            elif number == 1:
                expected[i] = (expected[i] * factor + expected[i].mean() * (1 - factor)).clamp(0, 1)
            if channels == 1 and number < 2:
                one = REFERENCES[number](pixels[i : i + 1].double(), factor)
                torch.testing.assert_close(one.shape, pixels[i : i + 1].shape)
    torch.testing.assert_close(
        color.jitter(pixels, *color.jitter_plan(factors, orders)).double(), expected, rtol=0, atol=1e-6
    )


def test_grayscale_equals_torchvisions_where_it_is_chosen_and_touches_nothing_else():
    pixels = images(6)
    expected = pixels.clone()
    expected[::2] = reference.rgb_to_grayscale(pixels[::2], num_output_channels=3)
    untouched = pixels[1::2].clone()
    color.grayscale_(pixels, torch.tensor([1.0, 0.0] * 3))
    torch.testing.assert_close(pixels, expected, rtol=0, atol=1e-6)
    assert torch.equal(pixels[1::2], untouched)


def test_solarize_equals_torchvisions_on_every_8_bit_level():
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    theirs = reference.solarize(levels, threshold=128)
    ours = levels.float() / 255
    expected = reference.solarize(ours, threshold=0.5)
    color.solarize_(ours)
    assert torch.equal(ours, expected)
    assert torch.equal((ours * 255).round().to(torch.uint8), theirs)
