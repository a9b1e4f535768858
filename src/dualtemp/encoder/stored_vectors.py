"""Features in one plain file, row after row, memory-mapped: any rows can be read without the others."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dualtemp.encoder.embedding_reader import EmbeddingFile

PIECE = 1 << 22  # numbers at once


class StoredVectors:
    """Features (N, F) of float32 or float16 in a file of exactly that many bytes."""

    def __init__(self, path: Path, count: int, width: int, dtype: str) -> None:
        """Map the file, whose size the caller has checked."""
        self.table = np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r", shape=(count, width))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.table)

    @property
    def width(self) -> int:
        """F, the number of features of a row."""
        return self.table.shape[1]

    def unit(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return rows, of any shape (...), as unit vectors float32 (..., F); a row of zeros stays one."""
        return unit_rows(self.table[rows])

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all rows as unit vectors, in pieces, each with the number of its first row."""
        step = max(1, PIECE // self.width)
        for start in range(0, len(self), step):
            yield start, self.unit(slice(start, start + step))


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Normalize (..., F) in float64, as exact search does; the result is float32."""
    x = x.astype(np.float64)
    return (x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)).astype(np.float32)


def store_vectors(file: BinaryIO, embeddings: EmbeddingFile, dtype: str) -> int:
    """Write the features of all rows to an open file, piece by piece; returns their number."""
    count = 0
    for piece in embeddings.rows():
        if piece.features.shape[1] != embeddings.width:
            raise ValueError("rows of different lengths")
        file.write(np.ascontiguousarray(piece.features, np.dtype(dtype).newbyteorder("<")).tobytes())
        count += len(piece.features)
    return count
