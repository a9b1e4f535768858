"""Read names, labels and parts of some rows of a feature file without reading the others."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dualtemp.encoder.embedding_reader import EmbeddingFile, explained, file_rows

Texts = Sequence[str | None]


class Caption(NamedTuple):
    """What a file says about one row besides its features."""

    name: str
    label: str | None
    part: str | None


class _Group(NamedTuple):
    """Consecutive rows: how many, and a function that reads their names, labels and parts."""

    size: int
    read: Callable[[], tuple[Sequence[str], Texts, Texts]]


def captions(file: EmbeddingFile, numbers: Iterable[int]) -> dict[int, Caption]:
    """Read names, labels and parts of rows by number; in .parquet files, only the row groups that hold them."""
    wanted, found, start = sorted(set(numbers)), {}, 0
    for path in file.files:
        groups = _parquet_groups(path) if path.suffix.lower() == ".parquet" else _other_groups(path)
        while True:
            with explained(path):
                group = next(groups, None)
                if group is None:
                    break
                here = wanted[bisect_left(wanted, start) : bisect_left(wanted, start + group.size)]
                if here:
                    names, labels, parts = group.read()
                    found |= {i: Caption(names[i - start], labels[i - start], parts[i - start]) for i in here}
            start += group.size
    return found


def _parquet_groups(path: Path) -> Iterator[_Group]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        there = file.schema_arrow.names
        wanted = [column for column in ("name", "label", "part") if column in there]
        for number in range(file.num_row_groups):
            size = file.metadata.row_group(number).num_rows

            def read(number: int = number, size: int = size) -> tuple[Sequence[str], Texts, Texts]:
                table = file.read_row_group(number, columns=wanted)
                labels, parts = (
                    table.column(word).to_pylist() if word in wanted else [None] * size for word in ("label", "part")
                )
                return table.column("name").to_pylist(), labels, parts

            yield _Group(size, read)


def _other_groups(path: Path) -> Iterator[_Group]:
    for piece in file_rows(path):
        yield _Group(len(piece.names), lambda piece=piece: piece[:3])
