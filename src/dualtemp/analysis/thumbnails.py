"""A sheet of thumbnails: one JPEG in a data URL, from which a page shows single tiles.

Tile n is at column n % columns, row n // columns.
"""

import base64
import io
import math

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

SMALLEST, LARGEST = 32, 64  # px; side of a tile
COLUMNS = 25
QUALITIES = (88, 80, 70, 60, 50)
MOST_BYTES = 1_000_000  # of a sheet, unless the lowest quality needs more; base64 adds a third


def tile_size(size: int) -> int:
    """Return the side of a tile for pictures of this side; small ones are enlarged by a whole number to stay sharp."""
    if size >= SMALLEST:
        return min(size, LARGEST)
    return size * math.ceil(SMALLEST / size)


def tiles(pictures: Tensor) -> Tensor:
    """Turn pictures (N, C, S, S) in [0, 1] into uint8 tiles (N, 1 or 3, tile, tile) on the CPU: gray or RGB."""
    shown = pictures[:, : 1 if pictures.shape[1] < 3 else 3].detach().float().cpu()
    size = shown.shape[-1]
    tile = tile_size(size)
    if tile > size:
        shown = F.interpolate(shown, (tile, tile), mode="nearest")
    elif tile < size:
        shown = F.interpolate(shown, (tile, tile), mode="bicubic", antialias=True)
    return (shown.clamp(0, 1) * 255).round().to(torch.uint8)


def sheet_url(tiles: Tensor, columns: int = COLUMNS, most_bytes: int = MOST_BYTES) -> str:
    """Encode one or more uint8 tiles (N, 1 or 3, tile, tile), see `tiles`, as `data:image/jpeg;base64,...`.

    columns: tiles per row; most_bytes: the quality is lowered until the JPEG is no larger.
    """
    picture = _sheet(tiles, columns)
    data = b""
    for quality in QUALITIES:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality, optimize=True)
        data = buffer.getvalue()
        if len(data) <= most_bytes:
            break
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()


def _sheet(tiles: Tensor, columns: int) -> Image.Image:
    count, channels, tile, _ = tiles.shape
    rows = -(-count // columns)
    sheet = tiles.new_zeros(rows * columns, channels, tile, tile)
    sheet[:count] = tiles
    # (rows, columns, C, tile, tile) -> (rows, tile, columns, tile, C)
    pixels = sheet.view(rows, columns, channels, tile, tile).permute(0, 3, 1, 4, 2).reshape(rows * tile, -1, channels)
    return Image.fromarray(pixels.squeeze(2).numpy() if channels == 1 else pixels.numpy())
