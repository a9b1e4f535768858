"""Small photographs that tests draw: smooth coloured patterns, no two alike."""

from pathlib import Path

import numpy as np
from PIL import Image


def drawn_photo(number: int, width: int = 60, height: int = 48) -> Image.Image:
    """The same picture for the same number."""
    coarse = np.random.default_rng(number).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def draw_photos(folder: Path, count: int, first: int = 0, suffix: str = ".png") -> list[Path]:
    """Files of pictures of different sizes, named by number."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03}{suffix}" for number in range(first, first + count)]
    for number, path in enumerate(paths, first):
        drawn_photo(number, 40 + 5 * (number % 7), 64 - 6 * (number % 5)).save(path)
    return paths
