"""Build an index of a feature file and measure its recall: what `dualtemp index` does."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dualtemp.atomic_write import whole_file, write_output
from dualtemp.encoder.embedding_file import FORMATS
from dualtemp.encoder.embedding_reader import EmbeddingFile
from dualtemp.encoder.index_file import KINDS, IndexHeader, checksum, described, index_paths
from dualtemp.encoder.index_recall import tune
from dualtemp.encoder.stored_vectors import StoredVectors, store_vectors
from dualtemp.encoder.vector_index import build, import_faiss, usual_kind
from dualtemp.errors import UserError, writing

TARGET = 0.95


class Indexed(NamedTuple):
    """An index that was built: its path, header, and the size of all its files in bytes."""

    path: Path
    header: IndexHeader
    bytes: int


def index(
    embeddings: Path | str,
    *,
    out: Path | str | None = None,
    kind: str | None = None,
    recall: float = TARGET,
    note: Callable[[str], None] | None = None,
) -> Indexed:
    """Build an index of features, so that `search` and `near_duplicates` need not compare with all of them.

    Memory: hnsw holds all vectors, ivfpq a code of some bytes for each; features are streamed. A killed call never
    leaves an index that passes for a complete one.

    Args:
        embeddings: a file or folder of `dualtemp embed`.
        out: FILE.index; default: beside the embeddings, with that ending.
        kind: "exact", "hnsw" or "ivfpq"; default: exact up to 20,000 vectors, hnsw up to 500,000, ivfpq above.
        recall: choose the cheapest settings that find this share of the ten nearest, default 0.95.
        note: called with messages for the user.
    """
    source = Path(embeddings)
    out = _beside(source) if out is None else Path(out)
    if kind is not None and kind not in KINDS:
        raise UserError(f"no kind of index is called {kind!r}: choose among {', '.join(KINDS)}")
    if not 0 < recall <= 1:
        raise UserError(f"recall is a share of the nearest, above 0 and up to 1, got {recall}")
    if out.suffix.lower() != ".index" or out.is_dir():
        raise UserError(f"{out}: give --out a file's name that ends with .index")
    faiss = import_faiss()
    file = EmbeddingFile(source)
    began = time.monotonic()
    path, stored, beside = index_paths(out)
    with writing(out, "give another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        fingerprint, dtype = checksum(*file.files), file.dtype
        with whole_file(stored) as opened:
            count = store_vectors(opened, file, dtype)
        vectors = StoredVectors(stored, count, file.width, dtype)
        kind = usual_kind(count) if kind is None else kind
        if note is not None:
            note(f"building an index of {count:,} vectors of {file.width}: {kind}")
        built, settings = build(vectors, kind, note)
        tuned, measured = tune(built, recall, note)
        with whole_file(path) as opened:
            faiss.write_index(built.found, faiss.PyCallbackIOWriter(opened.write))
        header = IndexHeader(
            kind=kind,
            count=count,
            width=file.width,
            dtype=dtype,
            embeddings=fingerprint,
            path=str(source.resolve()),
            backbone=file.about.get("backbone"),
            settings={**settings, **tuned},
            recall=measured,
            seconds=round(time.monotonic() - began, 2),
            files={"index": described(path), "vectors": described(stored)},
        )
        write_output(beside, header.to_json())
    return Indexed(out, header, sum(each.stat().st_size for each in index_paths(out)))


def _beside(source: Path) -> Path:
    """FILE.index beside FILE.parquet, FOLDER.index beside FOLDER."""
    source = source if source.name else source.resolve()
    name = source.stem if source.suffix.lower() in FORMATS else source.name
    return source.with_name(f"{name or 'features'}.index")
