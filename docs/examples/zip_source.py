"""Zipped images, train/CLASS/... and test/CLASS/...: `dualtemp train --plugin zip_source.py --data my.zip`"""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch

from dualtemp.data import ImageSet, ImageSource, Splits, source


@dataclass(frozen=True)
class ZipImages(ImageSource):
    """Images in a zip file, read one by one."""

    place: str
    names: tuple[str, ...]  # pyright: ignore[reportIncompatibleVariableOverride]
    channels: int = 3
    enough: int | None = None

    def content(self, i: int) -> bytes:
        """Open it anew each time: processes that share an open file would move each other's position."""
        with zipfile.ZipFile(self.place) as archive:
            return archive.read(self.names[i])


@source(".zip")
def open_zip(path: Path, *, labels: bool, together: bool) -> Splits:
    """The parts of a zip file."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if not name.endswith("/"))
    classes = tuple(sorted({name.split("/")[1] for name in names})) if labels else ()

    def part(folder: str) -> ImageSet:
        found = tuple(name for name in names if name.startswith(folder))
        known = torch.tensor([classes.index(name.split("/")[1]) for name in found]) if labels else None
        return ImageSet(path.stem, ZipImages(str(path), found), known, classes)

    return Splits(part("train/"), part("test/"), split="train/ and test/")
