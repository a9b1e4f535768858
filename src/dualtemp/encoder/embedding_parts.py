"""A folder of features in several parts, one file each, that processes write independently.

    features/part-00000-of-00004.parquet ... part-00003-of-00004.parquet

Part i of n holds consecutive whole batches of the list of images, so that its rows have the bits that one process would
have given them, and the parts in order hold the rows of one file. Each part records what it was computed from; a folder
is read only if all parts are there and agree.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from dualtemp.errors import UserError

_NAME = re.compile(r"part-(\d{5})-of-(\d{5})\.parquet")
_BEGUN = re.compile(r"\.part-(\d{5})-of-(\d{5})\.parquet\.work")
MOST = 99_999
COMPUTED, SHARE = "computed", "share"  # keys of a part's metadata: what it was computed from, and which part it is
LABELS = "labels"  # another key: a digest of the labels, classes and parts of all images; earlier versions lack it
UNREADABLE = "unreadable"  # another key, if files were left out: name -> reason


class Share(NamedTuple):
    """Part number `part`, from 0, of `parts`."""

    part: int
    parts: int

    @property
    def file_name(self) -> str:
        """The part's file name."""
        return f"part-{self.part:05}-of-{self.parts:05}.parquet"

    def images(self, count: int, batch: int) -> range:
        """The part's range of `count` images: whole batches; parts differ by one batch at most."""
        batches = -(-count // batch)
        start, stop = (batches * i // self.parts * batch for i in (self.part, self.part + 1))
        return range(min(start, count), min(stop, count))


def read_share(text: str) -> Share:
    """Read "3/8", part 3 of the parts 0 to 7."""
    words = text.split("/")
    if len(words) != 2 or not all(word.isascii() and word.isdecimal() and len(word) <= 9 for word in words):
        raise UserError(f"--share {text}: give the part and the number of parts, such as 0/8 for the first of eight")
    part, parts = map(int, words)
    check_parts(parts, "--share")
    if part >= parts:
        raise UserError(f"--share {text}: the parts of {parts} are 0/{parts} to {parts - 1}/{parts}")
    return Share(part, parts)


def check_parts(parts: int, flag: str = "--parts") -> None:
    """Raise UserError for a number of parts that does not fit into file names."""
    if not 1 <= parts <= MOST:
        raise UserError(f"{flag}: the number of parts is from 1 to {MOST:,}, got {parts}")


def parts_begun(folder: Path) -> set[int]:
    """The numbers of parts named by the folder's finished or begun files; empty if there are none."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    found = [match for name in names if (match := _NAME.fullmatch(name) or _BEGUN.fullmatch(name))]
    return {int(match[2]) for match in found}


def part_files(folder: Path) -> list[Path]:
    """The parts of a folder in order; raises UserError if one is missing, or if several numbers of parts are mixed."""
    found = [match for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    counts = sorted({int(match[2]) for match in found})
    if not counts:
        raise UserError(f"{folder}: no features in it; expected a folder or a file that `dualtemp embed` wrote")
    if len(counts) > 1:
        several = " and of ".join(map(str, counts))
        raise UserError(
            f"{folder}: it has parts of {several}: remove those of one division, or embed into a new folder"
        )
    (parts,) = counts
    there = {int(match[1]) for match in found}
    missing = [i for i in range(parts) if i not in there]
    if missing or len(there) != parts:
        first = missing[0] if missing else max(there)
        raise UserError(
            f"{folder}: {len(missing):,} of {parts:,} parts are missing, the first is {first}: continue with "
            f"`dualtemp embed ... --out {folder} --share {first}/{parts}`, or as it was begun"
        )
    return [folder / Share(i, parts).file_name for i in range(parts)]


def check_alike(files: Sequence[Path], abouts: Sequence[dict[str, Any]]) -> None:
    """Refuse parts that were computed from different images, encoders or settings, or that have other labels."""
    labeled = next((i for i, about in enumerate(abouts) if LABELS in about), 0)
    for file, about in zip(files, abouts, strict=True):
        if about.get(COMPUTED) != abouts[0].get(COMPUTED):
            _refuse(file, "is of other images, another encoder or other settings than", files[0])
        if LABELS in about and about[LABELS] != abouts[labeled][LABELS]:
            _refuse(file, "has other labels than", files[labeled])


def _refuse(file: Path, difference: str, other: Path) -> NoReturn:
    raise UserError(
        f"{file.parent}: {file.name} {difference} {other.name}: run the embed command that began it again, or embed "
        "into a new folder"
    )
