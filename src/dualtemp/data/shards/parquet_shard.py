"""Read a Parquet file with a column of encoded images, as in Hugging Face's sets.

The column is binary, or a struct of `bytes` and `path`. Labels are a column of integers, whose names may be in the
file's metadata (ClassLabel), or of strings.
"""

import json
from typing import Any, BinaryIO

from dualtemp.data.shards.contents import Gatherer, ShardContents
from dualtemp.data.shards.parquet_pages import Chunk, values
from dualtemp.data.shards.shard_index import CODECS
from dualtemp.data.shards.tar_members import Damaged
from dualtemp.errors import UserError

IMAGE_WORDS = ("image", "img", "images", "jpg", "jpeg", "png", "webp", "bytes", "content")
LABEL_WORDS = ("label", "labels", "cls", "class", "target", "category", "fine_label")


def list_parquet(raw: BinaryIO, images: BinaryIO | None = None) -> ShardContents:
    """List the images of a Parquet file; if it is damaged, those before the damage, and `trouble`. Raises OSError.

    images: a file to which they are copied, one after another.
    """
    pq = parquet_library()
    import pyarrow as pa

    try:
        file = pq.ParquetFile(raw)
        features = _features(file.schema_arrow)
        column = _image_column(file.schema_arrow, features)
        names, (labels, classes) = _names(file, column), _labels(file, features)
    except (pa.ArrowException, UnicodeDecodeError) as error:  # UnicodeDecodeError: a name or a label
        raise Damaged(f"not a readable Parquet file ({' '.join(str(error).split())[:120]})") from error
    found, missing, row, trouble = Gatherer(), 0, 0, ""
    try:
        for group in range(file.num_row_groups):
            chunk, codec = _chunk(file, group, column)
            unpack = None if not codec else pa.Codec(CODECS[codec]).decompress
            for value in values(raw, chunk, None if unpack is None else _as_bytes(unpack)):
                if value is None:
                    missing += 1
                else:
                    start, stored, unpacked, inner, content, packed = value
                    place = (start, stored, unpacked, inner, len(content), codec if packed else 0)
                    found.add_packed(names[row] if names else f"{row:06}", content, place)
                    found.labels[-1] = labels[row] if labels else None
                    if images is not None:
                        images.write(content)
                row += 1
    except (Damaged, pa.ArrowException) as error:
        trouble = " ".join(str(error).split())[:200]
    if missing and not trouble:
        trouble = f"{missing:,} of {row:,} rows have no image in them"
    return found.contents(classes, trouble)


def packs_images(raw: BinaryIO) -> bool:
    """Whether the images of a Parquet file are compressed, so that one cannot be read without others."""
    pq = parquet_library()
    import pyarrow as pa

    try:
        file = pq.ParquetFile(raw)
        column = _image_column(file.schema_arrow, _features(file.schema_arrow))
        return any(_chunk(file, group, column)[1] for group in range(file.num_row_groups))
    except (Damaged, pa.ArrowException):
        return False  # reported when it is listed


def parquet_library() -> Any:
    """Return pyarrow.parquet, which is optional."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError("shards in Parquet need pyarrow: pip install 'dualtemp[parquet]'") from None
    return pq


def _as_bytes(unpack: Any) -> Any:
    def unpacked(packed: bytes, length: int) -> bytes:
        try:
            return unpack(packed, length, asbytes=True)
        except OSError as error:
            raise Damaged(f"a damaged page ({' '.join(str(error).split())[:100]})") from error

    return unpacked


def _features(schema: Any) -> dict[str, Any]:
    """The metadata of the columns by the `datasets` library; empty if that did not write the file."""
    try:
        told = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return told if isinstance(told, dict) else {}
    except (KeyError, ValueError, TypeError):
        return {}


def _image_column(schema: Any, features: dict[str, Any]) -> str:
    import pyarrow as pa

    def is_binary(kind: Any) -> bool:
        return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)

    fitting = [
        field.name
        for field in schema
        if is_binary(field.type)
        or (
            pa.types.is_struct(field.type)
            and field.type.get_field_index("bytes") >= 0
            and is_binary(field.type.field("bytes").type)
        )
    ]
    told = [name for name in fitting if _kind(features.get(name)) == "Image"]
    usual = [name for word in IMAGE_WORDS for name in fitting if name.lower() == word]
    if not fitting:
        columns = ", ".join(schema.names[:8])
        raise Damaged(f"no column of images among {columns}; expected one of bytes, or of a struct with `bytes`")
    return (told or usual or fitting)[0]


def _kind(feature: Any) -> str:
    return feature.get("_type", "") if isinstance(feature, dict) else ""


def _chunk(file: Any, group: int, column: str) -> tuple[Chunk, int]:
    """The column chunk that holds the images of a row group, and the number of its codec."""
    about = file.metadata.row_group(group)
    for number in range(about.num_columns):
        chunk = about.column(number)
        if chunk.path_in_schema in (column, f"{column}.bytes"):
            described = file.schema.column(number)
            if described.max_repetition_level:
                raise Damaged(f"the column {column} holds lists of images; expected one image a row")
            offsets = (chunk.dictionary_page_offset, chunk.data_page_offset)
            start = min(offset for offset in offsets if offset)
            name = {"UNCOMPRESSED": "", "LZ4": "lz4_raw"}.get(chunk.compression, chunk.compression.lower())
            if name not in CODECS:
                raise Damaged(f"packed with {chunk.compression}, which is not read; write it again with snappy or zstd")
            return Chunk(start, chunk.num_values, described.max_definition_level), CODECS.index(name)
    raise Damaged(f"no column {column} in row group {group}")


def _names(file: Any, column: str) -> list[str]:
    """The paths beside the images if every image has one and all differ; else an empty list."""
    import pyarrow as pa

    kind = file.schema_arrow.field(column).type
    if not pa.types.is_struct(kind) or kind.get_field_index("path") < 0:
        return []
    paths = [each["path"] if each else None for each in file.read(columns=[f"{column}.path"])[column].to_pylist()]
    names = [str(path or "").replace("\\", "/").removeprefix("./").lstrip("/") for path in paths]
    return names if all(names) and len(set(names)) == len(names) else []


def _labels(file: Any, features: dict[str, Any]) -> tuple[list[str | None], tuple[str, ...]]:
    """The label of each row as a string (None: it has none), and the names of the classes, if the file has them."""
    import pyarrow as pa

    schema = file.schema_arrow
    told = [name for name in schema.names if _kind(features.get(name)) == "ClassLabel"]
    usual = [name for word in LABEL_WORDS for name in schema.names if name.lower() == word]
    named = next(iter([name for name in usual if name in told] or told or usual), None)
    if named is None:
        return [], ()
    kind = schema.field(named).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return [], ()
    names = (features.get(named) or {}).get("names") if named in told else None
    words = [str(each) for each in names] if isinstance(names, list) else []
    found = file.read(columns=[named])[named].to_pylist()
    # The hub's sets write -1 for a label that is withheld.
    return [None if each is None or each == -1 or each == "" else str(each) for each in found], tuple(words)
