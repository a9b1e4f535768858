"""An index of features: faiss finds candidates, which are then compared exactly, using the vectors on disk."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.index_file import AGAIN, IndexHeader, checksum, index_paths, read_header
from dualtemp.encoder.stored_vectors import StoredVectors
from dualtemp.errors import UserError

GATHERED = 1 << 24  # numbers that an exact comparison holds at once: 64 MiB
ADDED = 1 << 22  # numbers that are added at once
EXACT, LARGE = 20_000, 500_000  # "exact" up to the first number of vectors, "hnsw" up to the second, then "ivfpq"
LINKS, BUILD_WIDTH = 32, 80  # of hnsw: neighbors of a vector, and candidates considered while building
A_CELL = 48  # vectors per cell of ivfpq that its centers are fitted to
SHORTEST_CODE, LONGEST_CODE = 16, 96  # bytes of a vector's code in ivfpq


def import_faiss() -> Any:
    """Import faiss, with as many threads as torch; raises UserError if it is not installed."""
    try:
        import faiss
    except ImportError:
        raise UserError("an index needs faiss: pip install 'dualtemp[index]'") from None
    import torch

    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss


class VectorIndex:
    """Candidates from faiss, and their exact cosines from the vectors.

    settings: "candidates", the number compared exactly per query, and the effort of a search: "ef" of hnsw, "probes" of
    ivfpq.
    """

    def __init__(self, found: Any, vectors: StoredVectors, kind: str, settings: dict[str, int]) -> None:
        self.found, self.vectors, self.kind, self.settings = found, vectors, kind, dict(settings)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self.vectors)

    def apply(self, settings: dict[str, int]) -> None:
        """Use these settings from now on; others keep their values."""
        self.settings |= settings
        if self.kind == "hnsw":
            self.found.hnsw.efSearch = self.settings["ef"]
        elif self.kind == "ivfpq":
            self.found.nprobe = self.settings["probes"]

    def candidates(self, queries: np.ndarray, k: int) -> np.ndarray:
        """Rows int64 (Q, k) that may be near to unit queries (Q, F), in any order; -1 where there are no more."""
        if self.kind == "hnsw":
            self.found.hnsw.efSearch = max(self.settings["ef"], k)
        _, rows = self.found.search(np.ascontiguousarray(queries, np.float32), min(k, len(self)))
        return rows

    def exact(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Cosines float32 (Q, C) of unit queries (Q, F) with rows (Q, C), by the vectors; -inf for a row of -1."""
        s = np.empty(rows.shape, np.float32)
        step = max(1, GATHERED // (rows.shape[1] * self.vectors.width))
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            z = self.vectors.unit(np.maximum(rows[some], 0)).astype(np.float64)
            s[some] = np.einsum("qcf,qf->qc", z, queries[some].astype(np.float64))
        return np.where(rows < 0, -np.inf, np.minimum(s, 1))

    def near(self, queries: np.ndarray, rows: np.ndarray, least: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Indices at (P,), place (P,) of entries of `rows` (Q, C) with a cosine of at least `least`; cosines (P,).

        Cosines are those of `exact`, but a float32 product first discards most candidates.
        """
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))]
        step = max(1, GATHERED // (rows.shape[1] * self.vectors.width))
        for start in range(0, len(rows), step):
            some, q = rows[start : start + step], queries[start : start + step]
            at, place = np.nonzero((some >= 0) & self._may_reach(q, some, least))
            for first in range(0, len(at), GATHERED // self.vectors.width):
                i, j = (each[first : first + GATHERED // self.vectors.width] for each in (at, place))
                z = self.vectors.unit(some[i, j]).astype(np.float64)
                s = np.minimum(np.einsum("pf,pf->p", z, q[i].astype(np.float64)).astype(np.float32), 1)
                is_near = s >= least
                found.append((start + i[is_near], j[is_near], s[is_near]))
        at, place, s = (np.concatenate(each) for each in zip(*found, strict=True))
        return at, place, s

    def _may_reach(self, queries: np.ndarray, rows: np.ndarray, least: float) -> np.ndarray:
        """Whether a cosine may reach `least`, bool (Q, C); false only if float32 rounding cannot explain the gap."""
        z = self.vectors.table[np.maximum(rows, 0)].astype(np.float32, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("qcf,qcf->qc", z, z))
            rough = (z @ queries[:, :, None])[..., 0] / np.maximum(lengths, np.float32(1e-12))
            rounding = 2 * self.vectors.width * np.finfo(np.float32).eps
            return ~(rough < least - rounding) | ~(lengths < np.inf)  # squares above the range of float32

    def search(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k rows nearest to unit queries (Q, F), int64 (Q, k), and their cosines float32 (Q, k), descending.

        Of equal cosines the earlier row comes first. -1 and -inf where there are no more.
        """
        rows = self.candidates(queries, max(k, self.settings["candidates"]))
        s = self.exact(queries, rows)
        order = np.lexsort((rows, -s), axis=1)[:, :k]
        return np.take_along_axis(rows, order, 1), np.take_along_axis(s, order, 1)


def usual_kind(count: int) -> str:
    """The kind of index for so many vectors."""
    return "exact" if count <= EXACT else "hnsw" if count <= LARGE else "ivfpq"


def build(vectors: StoredVectors, kind: str, note: Any = None) -> tuple[VectorIndex, dict[str, int]]:
    """Stream all vectors into a new index; returns it and the settings that it was built with."""
    faiss, width, settings = import_faiss(), vectors.width, {}
    if kind == "exact":
        found = faiss.IndexFlatIP(width)
    elif kind == "hnsw":
        settings = {"links": LINKS, "build_width": BUILD_WIDTH}
        found = faiss.IndexHNSWFlat(width, LINKS, faiss.METRIC_INNER_PRODUCT)
        found.hnsw.efConstruction = BUILD_WIDTH
    else:
        found, settings = _trained_ivfpq(faiss, vectors, note)
    for start, z in vectors.pieces():
        found.add(z)
        if note is not None and start and start * 10 // len(vectors) != (start + len(z)) * 10 // len(vectors):
            note(f"{start + len(z):,} of {len(vectors):,} vectors are in the index")
    index = VectorIndex(found, vectors, kind, {"candidates": 100, "ef": 64, "probes": 8})
    index.apply({})
    return index, settings


def _trained_ivfpq(faiss: Any, vectors: StoredVectors, note: Any) -> tuple[Any, dict[str, int]]:
    """Train an empty ivfpq index of 2 sqrt(N) cells; codes of about F / 4 bytes, or F (no divisor nearby, N < 1024)."""
    count, width = len(vectors), vectors.width
    cells = max(1, min(round(2 * count**0.5), count // 4))
    goal = min(max(width // 4, SHORTEST_CODE), LONGEST_CODE)
    code = max((m for m in range(1, min(goal, width) + 1) if width % m == 0), default=1)
    quantizer = faiss.IndexFlatIP(width)
    if code * 2 >= min(goal, width) and count >= 1024:
        found = faiss.IndexIVFPQ(quantizer, width, cells, code, 8, faiss.METRIC_INNER_PRODUCT)
        found.pq.cp.niter = 10
    else:
        code = width
        kind = faiss.ScalarQuantizer.QT_8bit
        found = faiss.IndexIVFScalarQuantizer(quantizer, width, cells, kind, faiss.METRIC_INNER_PRODUCT)
    found.own_fields, _ = True, quantizer.this.disown()
    found.cp.niter, found.cp.max_points_per_centroid, found.cp.min_points_per_centroid = 10, A_CELL, 1
    found.cp.spherical = True
    sample = np.random.default_rng(0).permutation(count)[: max(A_CELL * cells, 20_000)]
    if note is not None:
        note(f"fitting {cells:,} cells and codes of {code} bytes to {len(sample):,} vectors")
    found.train(vectors.unit(np.sort(sample)))
    return found, {"cells": cells, "code_bytes": code}


def open_index(path: Path, embeddings: Path | None = None) -> tuple[VectorIndex, IndexHeader, EmbeddingFile]:
    """Open an index and its embeddings (default: where they were); raises UserError if they do not match."""
    header = read_header(path)
    there = Path(header.path) if embeddings is None else embeddings
    if embeddings is None and not there.exists():
        raise UserError(f"{path}: its embeddings are no longer at {there}: give --embeddings")
    file = EmbeddingFile(there)
    if checksum(*file.files) != header.embeddings:
        raise UserError(f"{path}: it is an index of other embeddings than {there}, or they were embedded anew: {AGAIN}")
    faiss = import_faiss()
    flags = faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY if header.kind == "ivfpq" else 0
    try:
        found = faiss.read_index(os.fspath(path), flags)
    except Exception as error:  # whatever faiss raises of a damaged file
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())[:100]}); {AGAIN}") from None
    if found.ntotal != header.count or found.d != header.width:
        raise UserError(f"{path}: it holds {found.ntotal} vectors of {found.d}, not what its JSON says: {AGAIN}")
    vectors = StoredVectors(index_paths(path)[1], header.count, header.width, header.dtype)
    settings = {"candidates": 100, "ef": 64, "probes": 8} | header.settings
    index = VectorIndex(found, vectors, header.kind, settings)
    index.apply({})
    return index, header, file
