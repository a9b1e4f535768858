import base64
import io

import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from dualtemp.analysis.thumbnails import sheet_url, tile_size, tiles


def opened(url: str) -> Image.Image:
    start, data = url.split(",")
    assert start == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@given(st.integers(1, 1000))
def test_a_tile_has_32_to_64_pixels_and_small_pictures_keep_theirs(size: int) -> None:
    tile = tile_size(size)
    assert 32 <= tile <= 64
    if size <= 64:
        assert tile % size == 0


@given(st.integers(1, 12), st.integers(1, 5), st.sampled_from([1, 3]))
def test_tile_n_lies_at_column_n_modulo_columns_and_row_n_by_columns(count: int, columns: int, channels: int) -> None:
    colours = (torch.arange(count * channels).view(count, channels, 1, 1) * 37 % 256).to(torch.uint8)
    sheet = opened(sheet_url(colours.expand(-1, -1, 32, 32).contiguous(), columns))
    assert sheet.mode == ("L" if channels == 1 else "RGB")
    assert sheet.size == (32 * columns, 32 * -(-count // columns))
    for n in range(count):
        seen = sheet.getpixel((n % columns * 32 + 16, n // columns * 32 + 16))
        expected = colours[n].flatten().tolist()
        assert max(abs(a - b) for a, b in zip((seen,) if channels == 1 else seen, expected, strict=True)) < 16  # pyright: ignore


def test_small_pictures_become_blocks_and_large_ones_are_averaged() -> None:
    small = torch.rand(2, 1, 8, 8)
    assert torch.equal(
        tiles(small), (small * 255).round().to(torch.uint8).repeat_interleave(4, 2).repeat_interleave(4, 3)
    )
    stripes = torch.tensor([0.0, 1.0]).repeat(128).expand(1, 3, 256, 256)
    grey = tiles(stripes)
    assert grey.shape == (1, 3, 64, 64)
    assert (grey.float() - 127.5).abs()[..., 4:-4].max() < 8


def test_of_many_channels_three_are_shown_and_of_two_one() -> None:
    assert tiles(torch.rand(1, 5, 32, 32)).shape[1] == 3
    assert tiles(torch.rand(1, 2, 32, 32)).shape[1] == 1


def test_a_sheet_that_would_be_too_large_is_of_lower_quality() -> None:
    noise: Tensor = torch.randint(256, (40, 3, 64, 64), dtype=torch.uint8)
    best = len(sheet_url(noise))
    assert len(sheet_url(noise, most_bytes=best * 3 // 4 * 7 // 10)) < best * 0.75
