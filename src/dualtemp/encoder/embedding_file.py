"""Feature files, one row per image, written and read in pieces, so that memory does not grow with their length.

    .parquet   columns name, part, label, and features, a list of fixed length of float32 or float16
    .npz       names, parts, labels (numbers, -1 for none) and classes, features float32 or float16 (N, F)
    .csv       name, part, label, f0, f1, ... with nine digits, enough to restore float32 exactly

part and label are included if they are known.
"""

import csv
import io
import itertools
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from dualtemp.errors import UserError
from dualtemp.file_names import valid_text

FORMATS = (".parquet", ".npz", ".csv")
DTYPES = ("float32", "float16")
ROWS = 4096  # rows of a piece
ABOUT = "dualtemp"  # key of the metadata in parquet and npz files


class TooLarge(UserError):
    """A feature is beyond the range of the type in which features are to be written."""


class Columns(NamedTuple):
    """The other columns of N images: names; parts and labels, int64 (N,) with -1 for none, or None."""

    names: Sequence[str]
    parts: np.ndarray | None
    part_names: tuple[str, ...]
    labels: np.ndarray | None
    classes: tuple[str, ...]


def checked_format(path: Path, dtype: str = "float32") -> str:
    """Return the ending of a feature file; raises UserError for another ending, or if a package is missing."""
    if dtype not in DTYPES:
        raise UserError(f"no dtype of features is called {dtype!r}: choose {' or '.join(DTYPES)}")
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise UserError(f"{path}: features go into {', '.join(FORMATS)} files; give a name with such an ending")
    if ending == ".csv" and dtype != "float32":
        raise UserError(f"{path}: .csv files are text, which {dtype} does not make smaller: take .parquet or .npz")
    if ending == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise UserError(
                f"{path}: .parquet files need pyarrow: pip install 'dualtemp[parquet]', or take .npz or .csv"
            ) from None
        if dtype == "float16" and int(pyarrow.__version__.partition(".")[0]) < 15:
            raise UserError(
                f"{path}: float16 in .parquet files needs pyarrow 15 or later, this is {pyarrow.__version__}"
            )
    return ending


def write_features(
    file: BinaryIO,
    ending: str,
    columns: Columns,
    blocks: Iterable[np.ndarray],
    width: int,
    about: dict[str, Any],
    dtype: str = "float32",
) -> None:
    """Write features, given as float32 blocks (n, F) of any length, and their columns.

    The same rows give the same bytes, however they are divided into blocks. dtype: "float32" or "float16", the type in
    the file; raises TooLarge if a feature does not fit into it.
    """
    pieces = ((rows, _rounded(piece, dtype)) for rows, piece in _regrouped(blocks, width))
    columns = columns._replace(names=[valid_text(name) for name in columns.names])
    write = {".parquet": _write_parquet, ".npz": _write_npz, ".csv": _write_csv}[ending]
    write(file, columns, pieces, width, about, np.dtype(dtype))


def _rounded(piece: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        kept = piece.astype(dtype, copy=False)
    if not np.isfinite(kept).all() and np.isfinite(piece).all():
        raise TooLarge(f"a feature of {np.abs(piece).max():g} does not fit into {dtype}: leave --dtype out")
    return kept


def valid_label(label: str | None) -> str | None:
    """Make a label valid text; None stays None."""
    return None if label is None else valid_text(label)


def _regrouped(blocks: Iterable[np.ndarray], width: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield pieces of ROWS rows (the last may be shorter), each with its range of rows."""
    held, count, start = [], 0, 0
    for block in itertools.chain(blocks, [None]):
        if block is not None:
            held.append(block)
            count += len(block)
        while count >= ROWS or (block is None and count):
            whole = np.concatenate(held) if len(held) > 1 else held[0]
            piece, rest = whole[:ROWS], whole[ROWS:]
            yield slice(start, start + len(piece)), piece.reshape(-1, width)
            start, held, count = start + len(piece), [rest], len(rest)


Pieces = Iterable[tuple[slice, np.ndarray]]


def _write_parquet(
    file: BinaryIO, columns: Columns, pieces: Pieces, width: int, about: dict[str, Any], dtype: np.dtype[Any]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [
        (word, numbers, pa.array(names, pa.string()))
        for word, numbers, names in (
            ("part", columns.parts, columns.part_names),
            ("label", columns.labels, [valid_text(name) for name in columns.classes]),
        )
        if numbers is not None
    ]
    fields = [pa.field("name", pa.string()), *(pa.field(word, pa.string()) for word, _, _ in texts)]
    fields.append(pa.field("features", pa.list_(pa.from_numpy_dtype(dtype), width)))
    schema = pa.schema(fields, metadata={ABOUT: json.dumps(about, sort_keys=True)})
    repeated: Any = [word for word, _, _ in texts]
    with pq.ParquetWriter(file, schema, use_dictionary=repeated) as writer:
        for rows, features in pieces:
            arrays = [pa.array(columns.names[rows], pa.string())]
            for _, numbers, names in texts:
                arrays.append(names.take(pa.array(numbers[rows], mask=numbers[rows] < 0)))
            arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), width))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=ROWS)


def _write_npz(
    file: BinaryIO, columns: Columns, pieces: Pieces, width: int, about: dict[str, Any], dtype: np.dtype[Any]
) -> None:
    count = len(columns.names)
    with zipfile.ZipFile(file, "w") as archive:

        def put(name: str, dtype: str, shape: tuple[int, ...], parts: Iterable[np.ndarray]) -> None:
            # A ZipInfo made here has a fixed date, so that equal content gives equal bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                npy.write_array_header_1_0(entry, {"descr": dtype, "fortran_order": False, "shape": shape})
                for part in parts:
                    entry.write(np.ascontiguousarray(part, dtype=dtype).tobytes())

        def put_texts(name: str, texts: Sequence[str]) -> None:
            dtype = f"<U{max([1, *map(len, texts)])}"
            starts = range(0, len(texts), ROWS)
            put(name, dtype, (len(texts),), (np.array(texts[i : i + ROWS], dtype) for i in starts))

        put_texts("names", columns.names)
        if columns.parts is not None:
            put_texts("parts", [columns.part_names[part] if part >= 0 else "" for part in columns.parts])
        if columns.labels is not None:
            put("labels", "<i8", (count,), [columns.labels])
            put_texts("classes", [valid_text(name) for name in columns.classes])
        put_texts(ABOUT, [json.dumps(about, sort_keys=True)])
        put("features", f"<f{dtype.itemsize}", (count, width), (features for _, features in pieces))


def _write_csv(
    file: BinaryIO, columns: Columns, pieces: Pieces, width: int, about: dict[str, Any], dtype: np.dtype[Any]
) -> None:
    texts = [
        (word, numbers, [*names, ""])  # -1 takes the last one
        for word, numbers, names in (
            ("part", columns.parts, columns.part_names),
            ("label", columns.labels, [valid_text(name) for name in columns.classes]),
        )
        if numbers is not None
    ]
    row_format = ",".join(["%.9g"] * width)
    head = ["name", *(word for word, _, _ in texts), *(f"f{i}" for i in range(width))]
    file.write(f"{_csv_line(head)}\n".encode())
    for rows, features in pieces:
        lines = []
        for i, values in zip(range(rows.start, rows.stop), features.tolist(), strict=True):
            words = [columns.names[i], *(names[numbers[i]] for _, numbers, names in texts)]
            lines.append(f"{_csv_line(words)},{row_format % tuple(values)}\n")
        file.write("".join(lines).encode())


def _csv_line(words: list[str]) -> str:
    """The words as a CSV line without its end. csv quotes line ends in words only if it writes a line end itself."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(words)
    return line.getvalue().removesuffix("\r\n")
