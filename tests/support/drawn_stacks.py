"""Small TIFF files of several channels that tests draw."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def write_stack(path: Path, values: np.ndarray, **how: Any) -> np.ndarray:
    """values: (H, W, C)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    how = {"photometric": "minisblack", "planarconfig": "contig", **how}
    planar = how["planarconfig"] == "separate"
    import tifffile

    tifffile.imwrite(path, np.moveaxis(values, -1, 0) if planar else values, **how)
    return values


def drawn_stack(number: int, channels: int = 4, dtype: type = np.uint16, side: int = 40) -> np.ndarray:
    """Smooth patterns; channel c has values around 500 (c + 1)."""
    coarse = np.random.default_rng(number).random((4, 5, channels))
    smooth = [
        np.asarray(
            Image.fromarray(coarse[..., c].astype(np.float32)).resize((side, side - 4), Image.Resampling.BILINEAR)
        )
        for c in range(channels)
    ]
    return ((np.stack(smooth, -1) + 0.5) * 500 * (1 + np.arange(channels))).astype(dtype)


def draw_stacks(folder: Path, count: int, first: int = 0) -> list[np.ndarray]:
    return [write_stack(folder / f"{n:03}.tif", drawn_stack(n)) for n in range(first, first + count)]
