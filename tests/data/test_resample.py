"""Resampling by matrices: torch's antialiased bicubic and torchvision's blur."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dualtemp.data.augment.resample import CropTable, gaussian_blur, resize_weights, separable
from dualtemp.torchvision_operators import declare_missing_operators

declare_missing_operators()
from torchvision.transforms.v2 import functional as reference  # noqa: E402

CPU = torch.device("cpu")


def images(count: int, channels: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, channels, height, width, generator=torch.Generator().manual_seed(seed))


def crops_of(side: int, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    length = torch.randint(1, side + 1, (count,), generator=generator)
    start = (torch.rand(count, generator=generator) * (side - length + 1)).long()
    return start, length


def resized(pixels: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return F.interpolate(pixels, size, mode="bicubic", antialias=True, align_corners=False)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_weights_resize_any_crop_as_antialiased_bicubic_does(height, width, size, channels, seed):
    pixels = images(4, channels, height, width, seed).double()
    top, crop_height = crops_of(height, 4, seed)
    left, crop_width = crops_of(width, 4, seed + 1)
    rows = resize_weights(top, crop_height, height, size, torch.float64)
    columns = resize_weights(left, crop_width, width, size, torch.float64)
    ours = separable(rows, pixels, columns)
    for i in range(4):
        crop = pixels[i : i + 1, :, top[i] : top[i] + crop_height[i], left[i] : left[i] + crop_width[i]]
        torch.testing.assert_close(ours[i : i + 1], resized(crop, (size, size)), rtol=0, atol=1e-10)


# Up to 45 px all crops are unrolled, up to 128 a window slides over them, beyond that weights are computed in float32.
@pytest.mark.parametrize(("side", "size"), [(32, 32), (28, 64), (8, 32), (96, 96), (96, 32), (150, 160), (200, 224)])
def test_looked_up_weights_resize_as_torch_does_in_float32(side, size):
    table = CropTable(side, size, CPU)
    pixels = images(24, 3, side, side)
    top, height = crops_of(side, 24, 1)
    left, width = crops_of(side, 24, 2)
    mirrored = torch.arange(24) % 3 == 0
    ours = separable(table.weights(top, height), pixels, table.weights(left, width, mirrored.nonzero().squeeze(1)))
    for i in range(24):
        crop = pixels[i : i + 1, :, top[i] : top[i] + height[i], left[i] : left[i] + width[i]]
        exact = resized(crop.double(), (size, size))[0]
        exact = exact.flip(2) if mirrored[i] else exact
        # torch itself, in float32, is off by about this much: 3e-7 enlarging, some 1e-5 reducing
        assert (ours[i] - exact).abs().max() < (1e-6 if side <= 128 else 2e-5)


def test_a_crop_of_8_bit_pixels_is_within_one_level_of_pillows_where_pillow_does_not_clip():
    # Pillow rounds and clips between its two passes; mid-range values keep away from the clipping.
    pixels = (images(1, 3, 40, 50, 3) * 100 + 80).round().to(torch.uint8)
    rows = resize_weights(torch.tensor([5]), torch.tensor([21]), 40, 32)
    columns = resize_weights(torch.tensor([7]), torch.tensor([40]), 50, 32)
    ours = separable(rows, pixels.float(), columns)[0]
    image = (
        Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
        .crop((7, 5, 47, 26))
        .resize((32, 32), Image.Resampling.BICUBIC)
    )
    assert (ours.round() - torch.from_numpy(np.array(image)).permute(2, 0, 1)).abs().max() <= 1


def test_one_pair_of_matrices_serves_a_whole_batch():
    pixels = images(5, 2, 12, 9)
    rows = resize_weights(torch.tensor([0]), torch.tensor([12]), 12, 7)
    columns = resize_weights(torch.tensor([0]), torch.tensor([9]), 9, 6)
    torch.testing.assert_close(separable(rows, pixels, columns), resized(pixels, (7, 6)), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("side", "kernel"), [(32, 3), (96, 9), (64, 23), (5, 3), (224, 23)])
def test_blur_equals_torchvisions(side, kernel):
    pixels = images(4, 3, side, side)
    sigma = torch.tensor([0.1, 0.5, 1.3, 2.0], dtype=torch.float64)
    ours = gaussian_blur(pixels, sigma, kernel)
    for i in range(4):
        # in float64: a convolution with 23 x 23 taps in float32 is itself off by more than 1e-6
        theirs = reference.gaussian_blur(pixels[i].double(), [kernel, kernel], [float(sigma[i])] * 2)
        torch.testing.assert_close(ours[i].double(), theirs, rtol=0, atol=1e-6)


def test_a_kernel_wider_than_the_image_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        gaussian_blur(images(1, 3, 3, 3), torch.ones(1), 7)
