"""The files of an index, and the checks that they must pass before they are used.

    x.index          faiss's own format, read by its native code
    x.index.vectors  the features themselves, row after row: candidates are compared again exactly
    x.index.json     kind of index, the embeddings it belongs to, its measured recall, sizes and checksums

The JSON is written last: if writing was interrupted, it is missing or does not match, and the index is refused.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError

FORMAT = 1
KINDS = ("exact", "hnsw", "ivfpq")
WHOLE = 1 << 30  # bytes; checksums of larger files cover only evenly spaced blocks
BLOCK, BLOCKS = 1 << 16, 256
EXPECTED = "expected a file that `dualtemp index` wrote"
AGAIN = "build it again with `dualtemp index`"


@dataclass(frozen=True)
class IndexHeader:
    """What the JSON beside an index says.

    kind: one of KINDS; count, width, dtype: of the vectors; embeddings: fingerprint of the feature file; path: where it
    was; backbone: fingerprint of the encoder, if the feature file has it; settings: of index and search; recall: as
    measured; seconds: to build it; files: size and checksum of the other two files.
    """

    kind: str
    count: int
    width: int
    dtype: str
    embeddings: str
    path: str
    backbone: str | None
    settings: dict[str, int]
    recall: dict[str, Any]
    seconds: float
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> str:
        """The header as text."""
        return json.dumps(asdict(self), indent=1) + "\n"


def index_paths(path: Path) -> tuple[Path, Path, Path]:
    """The files of an index: faiss's, the vectors, the JSON."""
    return path, path.with_name(f"{path.name}.vectors"), path.with_name(f"{path.name}.json")


def read_header(path: Path) -> IndexHeader:
    """Read and check the JSON of an index, and that its files are as it says; raises UserError otherwise."""
    _, _, beside = index_paths(path)
    if not path.is_file() or not beside.is_file():
        missing = path if not path.is_file() else beside
        raise UserError(f"{missing}: no such file; {EXPECTED}")
    try:
        said = json.loads(beside.read_text(encoding="utf-8"))
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            raise ValueError("another format")
        header = IndexHeader(**said)
        _check_types(header)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{beside}: cannot be read ({reason}); {AGAIN}") from None
    for file, kept in zip(index_paths(path)[:2], ("index", "vectors"), strict=True):
        size = file.stat().st_size if file.is_file() else -1
        if size != header.files[kept]["bytes"] or checksum(file) != header.files[kept]["checksum"]:
            raise UserError(
                f"{file}: it is not what {beside.name} says, so writing was interrupted or it was changed: {AGAIN}"
            )
    return header


def _check_types(header: IndexHeader) -> None:
    whole = header.count > 0 and header.width > 0
    wanted = {"kind": KINDS, "dtype": ("float32", "float16")}
    if not whole or any(getattr(header, name) not in choices for name, choices in wanted.items()):
        raise ValueError("kind, dtype, count and width are wanted")
    if not isinstance(header.count, int) or not isinstance(header.width, int):
        raise ValueError("count and width are whole numbers")
    if not isinstance(header.embeddings, str) or not isinstance(header.path, str):
        raise ValueError("embeddings and path are texts")
    if not all(isinstance(value, int) and value > 0 for value in header.settings.values()):
        raise ValueError("settings are whole numbers above 0")
    for name in ("index", "vectors"):
        if set(header.files[name]) != {"bytes", "checksum"} if name in header.files else True:
            raise ValueError(f"size and checksum of `{name}` are wanted")
    if header.files["vectors"]["bytes"] != header.count * header.width * (4 if header.dtype == "float32" else 2):
        raise ValueError("as many bytes of vectors as count, width and dtype say are wanted")


def described(path: Path) -> dict[str, Any]:
    """Size and checksum of a file."""
    return {"bytes": path.stat().st_size, "checksum": checksum(path)}


def checksum(*paths: Path) -> str:
    """Checksum of files: their sizes and content; of a file above 1 GiB, 256 evenly spaced blocks of 64 KiB."""
    digest = blake2b(digest_size=16)
    for path in paths:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(size.to_bytes(8, "little"))
            for start in _starts(size):
                file.seek(start)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()


def _starts(size: int) -> Sequence[int]:
    if size <= WHOLE:
        return range(0, size, BLOCK)
    return [(size - BLOCK) * i // (BLOCKS - 1) for i in range(BLOCKS)]
