"""Read files of features in pieces. Nothing in them is run or unpickled; a damaged file is one line."""

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

from dualtemp.encoder.embedding_file import ABOUT, FORMATS, ROWS, checked_format
from dualtemp.errors import UserError

EXPECTED = "expected a file that `dualtemp embed` wrote"


class Rows(NamedTuple):
    """Some rows of a file: names, labels and parts (None where there is none), and features float32 (n, F)."""

    names: list[str]
    labels: Sequence[str | None]
    parts: Sequence[str | None]
    features: np.ndarray


class EmbeddingFile:
    """A file of features. about: its metadata, empty if it has none; width: number of features per image."""

    def __init__(self, path: Path) -> None:
        """Open the file, read its metadata and the first rows."""
        if not path.is_file():
            raise UserError(f"{path}: no such file; {EXPECTED}")
        self.path, self._ending = path, checked_format(path)
        self.about: dict[str, Any] = {}
        if self._ending != ".csv":
            with _explained(path):
                said = json.loads((_about_parquet if self._ending == ".parquet" else _about_npz)(path))
                self.about = said if isinstance(said, dict) else {}
        first = next(self.rows(), None)
        if first is None:
            raise UserError(f"{path}: there is no row in it; {EXPECTED}")
        self.width = first.features.shape[1]

    def rows(self) -> Iterator[Rows]:
        """Yield all rows, in pieces."""
        read = {".parquet": _parquet, ".npz": _npz, ".csv": _csv}[self._ending]
        pieces = read(self.path)
        while True:
            with _explained(self.path):
                piece = next(pieces, None)
                if piece is not None and not np.isfinite(piece.features).all():
                    raise ValueError("features that are not finite")
            if piece is None:
                return
            yield piece


def is_embeddings(path: Path) -> bool:
    """Whether a path names features instead of a run: a file with the ending of one."""
    return path.is_file() and path.suffix.lower() in FORMATS


class _explained:  # noqa: N801  used as a statement
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
            if features.ndim != 2 or features.dtype != np.float32 or names.dtype.kind != "U" or names.ndim != 1:
                raise ValueError("names as text (N,) and features as float32 (N, F) are wanted")
            if any(len(each) != len(names) for each in (features, known, part) if each is not None):
                raise ValueError("as many names, labels and parts as features are wanted")
            labels = [None] * len(names) if known is None else [classes[i] if i >= 0 else None for i in known.tolist()]
            parts = [None] * len(names) if part is None else [text or None for text in part.tolist()]
            yield Rows(names.tolist(), labels, parts, features)


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
