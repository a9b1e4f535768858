"""Read features in pieces, from a file or a folder of parts. Runs no code from them; a damaged file is a UserError."""

import csv
import itertools
import json
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from dualtemp.data.loading.stacks import Levels, as_levels
from dualtemp.encoder.embedding_file import ABOUT, FORMATS, ROWS, checked_format
from dualtemp.encoder.embedding_parts import check_alike, part_files, parts_begun
from dualtemp.errors import UserError

FLOATS = (np.dtype(np.float32), np.dtype(np.float16))
EXPECTED = "expected a file that `dualtemp embed` wrote"


class Rows(NamedTuple):
    """Some rows of a file: names, labels and parts (None where there is none), and features float32 (n, F)."""

    names: list[str]
    labels: Sequence[str | None]
    parts: Sequence[str | None]
    features: np.ndarray


class EmbeddingFile:
    """A file of features, or a folder of parts that reads as one file.

    files: the files, in their order; about: their metadata, empty if there is none; width: of the features.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, read its metadata and the first rows."""
        self.path = path
        if path.is_dir():
            self.files = part_files(path)
            abouts = [_about(file) for file in self.files]
            check_alike(self.files, abouts)
            self.about = abouts[0]
        else:
            if not path.is_file():
                raise UserError(f"{path}: no such file; {EXPECTED}")
            self.files, self.about = [path], _about(path)
        first = next(self.rows(), None)
        if first is None:
            raise UserError(f"{path}: there is no row in it; {EXPECTED}")
        self.width = first.features.shape[1]

    def rows(self) -> Iterator[Rows]:
        """Yield all rows, in pieces."""
        for file in self.files:
            yield from file_rows(file)

    @property
    def levels(self) -> Levels | None:
        """The levels with which the images were read (`ImageSource.levels`), for showing them; None if without."""
        with suppress(ValueError, TypeError):
            return as_levels(self.about.get("levels"))
        return None

    @property
    def dtype(self) -> str:
        """The type of the features in the file, "float32" or "float16"; they are always read as float32."""
        for file in self.files:
            with explained(file):
                return _kept_as(file)
        return "float32"


def is_embeddings(path: Path) -> bool:
    """Whether a path names features instead of a run: a file with the ending of one, or a folder of parts."""
    return (path.is_file() and path.suffix.lower() in FORMATS) or (path.is_dir() and bool(parts_begun(path)))


def read_about(path: Path) -> tuple[dict[str, Any], int]:
    """Read the metadata and the number of rows of a .parquet file; raises UserError if it is not one."""
    import pyarrow.parquet as pq

    with explained(path):
        rows = pq.read_metadata(path).num_rows
    return _about(path), rows


def _about(path: Path) -> dict[str, Any]:
    ending = checked_format(path)
    if ending == ".csv":
        return {}
    with explained(path):
        said = json.loads((_about_parquet if ending == ".parquet" else _about_npz)(path))
    return said if isinstance(said, dict) else {}


def file_rows(path: Path) -> Iterator[Rows]:
    """Yield all rows of one file, in pieces."""
    pieces = {".parquet": _parquet, ".npz": _npz, ".csv": _csv}[checked_format(path)](path)
    while True:
        with explained(path):
            piece = next(pieces, None)
            if piece is not None and not np.isfinite(piece.features).all():
                raise ValueError("features that are not finite")
        if piece is None:
            return
        yield piece


class explained:  # noqa: N801  used as `with explained(path):`
    """Turn any read error into a UserError. A class, not @contextmanager, because the reader yields between uses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Raise the UserError."""
        if isinstance(error, Exception) and not isinstance(error, UserError):
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise UserError(f"{self.path}: cannot be read ({reason}); {EXPECTED}") from None


def _kept_as(path: Path) -> str:
    ending = path.suffix.lower()
    if ending == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        kind: Any = pq.read_schema(path).field("features").type
        return "float16" if kind.value_type == pa.float16() else "float32"
    if ending == ".npz":
        with zipfile.ZipFile(path) as archive:
            return str(next(_pieces(archive, "features")).dtype)
    return "float32"


def _about_parquet(path: Path) -> str:
    import pyarrow.parquet as pq

    return (pq.read_schema(path).metadata or {}).get(ABOUT.encode(), b"{}").decode()


def _about_npz(path: Path) -> str:
    with zipfile.ZipFile(path) as archive, suppress(KeyError):
        return str(next(_pieces(archive, ABOUT))[0])
    return "{}"


def _parquet(path: Path) -> Iterator[Rows]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        there = file.schema_arrow.names
        _require(there, "name", "features")
        wanted = [column for column in ("name", "label", "part", "features") if column in there]
        for batch in file.iter_batches(ROWS, columns=wanted):
            lists = batch.column("features")
            if lists.null_count or lists.flatten().null_count:
                raise ValueError("features with gaps")
            features = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
            labels, parts = (
                batch.column(word).to_pylist() if word in wanted else [None] * len(batch) for word in ("label", "part")
            )
            yield Rows(batch.column("name").to_pylist(), labels, parts, features.reshape(len(batch), -1))


def _npz(path: Path) -> Iterator[Rows]:
    with zipfile.ZipFile(path) as archive:
        there = [entry.removesuffix(".npy") for entry in archive.namelist()]
        _require(there, "names", "features")
        labeled = "labels" in there and "classes" in there
        classes = [name for piece in _pieces(archive, "classes") for name in piece.tolist()] if labeled else []
        numbers = _pieces(archive, "labels") if labeled else itertools.repeat(None)
        texts = _pieces(archive, "parts") if "parts" in there else itertools.repeat(None)
        for names, features, known, part in zip(
            _pieces(archive, "names"), _pieces(archive, "features"), numbers, texts, strict=False
        ):
            if features.ndim != 2 or features.dtype not in FLOATS or names.dtype.kind != "U" or names.ndim != 1:
                raise ValueError("names as text (N,) and features as float32 or float16 (N, F) are wanted")
            if any(len(each) != len(names) for each in (features, known, part) if each is not None):
                raise ValueError("as many names, labels and parts as features are wanted")
            labels = [None] * len(names) if known is None else [classes[i] if i >= 0 else None for i in known.tolist()]
            parts = [None] * len(names) if part is None else [text or None for text in part.tolist()]
            yield Rows(names.tolist(), labels, parts, features.astype(np.float32, copy=False))


def _pieces(archive: zipfile.ZipFile, name: str) -> Iterator[np.ndarray]:
    """Yield an array of an .npz file in pieces of ROWS rows; it is never in memory as a whole."""
    with archive.open(f"{name}.npy") as entry:
        header = npy.read_array_header_1_0 if npy.read_magic(entry) == (1, 0) else npy.read_array_header_2_0  # pyright: ignore[reportArgumentType]
        read: tuple[Any, Any, Any] = header(entry)  # pyright: ignore[reportArgumentType]
        shape, fortran, dtype = read
        if dtype.hasobject or (fortran and len(shape) > 1) or not shape or len(shape) > 2:
            raise ValueError(f"`{name}` is not a plain list or table")
        row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        for start in range(0, shape[0], ROWS):
            count = min(ROWS, shape[0] - start)
            content = _exactly(entry, count * row)  # pyright: ignore[reportArgumentType]
            yield np.frombuffer(content, dtype).reshape(count, *shape[1:])


def _exactly(entry: BinaryIO, count: int) -> bytes:
    content = entry.read(count)
    if len(content) != count:
        raise ValueError("it is cut short")
    return content


def _csv(path: Path) -> Iterator[Rows]:
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        head = next(reader, [])
        width = sum(1 for word in head if word[:1] == "f" and word[1:].isdecimal())
        if not width or head[:1] != ["name"] or head[len(head) - width :] != [f"f{i}" for i in range(width)]:
            raise ValueError("a first line `name,...,f0,f1,...` is wanted")
        known = {word: head.index(word) for word in ("label", "part") if word in head[: len(head) - width]}
        while piece := list(itertools.islice(reader, ROWS)):
            if any(len(row) != len(head) for row in piece):
                raise ValueError("a line is longer or shorter than the first")
            features = np.array([row[len(head) - width :] for row in piece]).astype(np.float32)
            labels, parts = (
                [row[known[word]] or None if word in known else None for row in piece] for word in ("label", "part")
            )
            yield Rows([row[0] for row in piece], labels, parts, features)


def _require(there: list[str], *wanted: str) -> None:
    for name in wanted:
        if name not in there:
            raise ValueError(f"no `{name}` in it")
