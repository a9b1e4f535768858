"""Shards of a folder of photographs, written by Python's own `tarfile`, which the package does not use to read them."""

import io
import tarfile
from pathlib import Path

from drawn_photos import draw_photos


def draw_folder(folder: Path, train: int = 12, test: int = 4) -> Path:
    """train/ and test/ with the classes cat and dog; one file is broken."""
    for number, place in enumerate(("train/cat", "train/dog", "test/cat", "test/dog")):
        draw_photos(folder / place, train if "train" in place else test, 20 * number)
    (folder / "train/cat/003.png").write_bytes(b"broken")
    return folder


def add_member(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def write_shards(folder: Path, out: Path, each: int, form: int = tarfile.PAX_FORMAT) -> list[Path]:
    """The images below a folder with class folders, `each` in a shard, with .cls files: 000.tar, 001.tar, ..."""
    out.mkdir(parents=True, exist_ok=True)
    paths = sorted(folder.rglob("*.png"), key=lambda path: path.relative_to(folder).as_posix())
    classes = sorted({path.parent.name for path in paths})
    made = []
    for number, first in enumerate(range(0, len(paths), each)):
        made.append(out / f"{number:03}.tar")
        with tarfile.open(made[-1], "w", format=form) as archive:
            for path in paths[first : first + each]:
                name = path.relative_to(folder).as_posix()
                add_member(archive, name, path.read_bytes())
                add_member(archive, name.removesuffix(".png") + ".cls", str(classes.index(path.parent.name)).encode())
    (out.parent / "classes.txt").write_text("".join(f"{name}\n" for name in classes))
    return made
