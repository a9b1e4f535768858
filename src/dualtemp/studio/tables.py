"""Export a table of the images as CSV, or as Parquet for other tools.

Columns: name, filepath (absolute; empty for images without a file), part, label, tags, prediction, confidence,
uncertainty, x, y (position on the map). In Parquet, tags are a list, and `features` are added as `dualtemp embed`
writes them.
"""

import csv
import io
from typing import Any

import numpy as np

from dualtemp.errors import UserError
from dualtemp.file_names import valid_text
from dualtemp.studio.label_file import BETWEEN
from dualtemp.studio.workspace import Workspace

ROWS = 4_096
TEXTS = ("name", "filepath", "part", "label")


def table_csv(workspace: Workspace) -> bytes:
    """The table as CSV."""
    columns = _columns(workspace)
    columns["tags"] = [BETWEEN.join(tags) for tags in columns["tags"]]
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(
        ["" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else _inert(cell) for cell in row]
        for row in zip(*columns.values(), strict=True)
    )
    return text.getvalue().encode()


def table_parquet(workspace: Workspace) -> bytes:
    """The table as Parquet, with features."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install 'dualtemp[parquet]', or export CSV") from None
    columns, features = _columns(workspace), workspace.space.features
    types = {name: pa.float32() for name in columns} | {name: pa.string() for name in TEXTS}
    types |= {"prediction": pa.string(), "tags": pa.list_(pa.string())}
    width = features.shape[1]
    fields = [pa.field(name, types[name]) for name in columns]
    schema = pa.schema([*fields, pa.field("features", pa.list_(pa.float32(), width))])
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, schema) as writer:
        for start in range(0, len(features), ROWS):
            here = slice(start, start + ROWS)
            arrays: list[Any] = [pa.array(values[here], types[name]) for name, values in columns.items()]
            arrays.append(pa.FixedSizeListArray.from_arrays(pa.array(features[here].reshape(-1)), width))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return buffer.getvalue()


def _columns(workspace: Workspace) -> dict[str, list[Any]]:
    shown, found, space = workspace.shown, workspace.probe.predictions, workspace.space
    images, count = shown.images, len(shown.images)
    paths = [images.path(i) for i in range(count)]
    places = space.places.get("neighbors", space.places["components"])
    columns: dict[str, list[Any]] = {
        "name": images.names,
        "filepath": [None if path is None else valid_text(str(path.resolve())) for path in paths],
        "part": images.parts,
        "label": workspace.words(),
        "tags": [list(shown.labels.entry(i).tags) for i in range(count)],
    }
    if found is not None:
        columns["prediction"] = [found.classes[code] for code in found.codes.tolist()]
        columns["confidence"] = _numbers(found.confidence)
        columns["uncertainty"] = _numbers(found.uncertainty)
    columns["x"], columns["y"] = _numbers(places[:, 0]), _numbers(places[:, 1])
    return columns


def _numbers(values: np.ndarray) -> list[float]:
    return values.astype(np.float64).tolist()


def _inert(cell: str) -> str:
    """The cell, with an apostrophe in front of a leading = or @, which spreadsheets would take for a formula."""
    return f"'{cell}" if cell[:1] in ("=", "@") else cell
