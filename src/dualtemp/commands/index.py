"""`dualtemp index`: build an index of a file of features. Needs no torch until features are read."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import add_json
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json, print_note

DETAILS = """\
exact   compares with all vectors (default up to 20,000)
hnsw    a graph of neighbors, all vectors in memory (default up to 500,000)
ivfpq   cells and short codes, mapped from disk (default above)

Candidates are compared again, exactly, using the vectors on disk. Recall is measured on queries that were not used for
tuning, printed, and stored in FILE.index.json. Needs faiss: pip install 'dualtemp[index]'."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("embeddings", type=Path, metavar="EMBEDDINGS", help="a file or folder of `dualtemp embed`")
    parser.add_argument("--out", type=Path, metavar="FILE.index", help="default: beside the embeddings")
    parser.add_argument("--kind", choices=("exact", "hnsw", "ivfpq"), help="default: by the number of vectors")
    parser.add_argument("--recall", type=float, default=0.95, metavar="X", help="recall@10 to aim for (default: 0.95)")
    add_json(parser, " instead of a line")


def run(given: dict[str, Any]) -> int:
    """Build the index and print its recall."""
    from dataclasses import asdict

    from dualtemp.encoder.index import index
    from dualtemp.quantities import duration

    words = {name: given[name] for name in ("out", "kind", "recall")}
    made = index(given["embeddings"], **words, note=print_note)
    header = made.header
    if given["json"]:
        print_json({"path": str(made.path), "bytes": made.bytes, **asdict(header)})
        return 0
    size = header.files["index"]["bytes"] / header.count
    settings = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in header.settings.items())
    print(
        f"{made.path}: {header.kind}, {header.count:,} vectors of {header.width}, {size:,.0f} bytes each, "
        f"in {duration(header.seconds)}; {settings}"
    )
    recall, queries = header.recall["recall@10"], header.recall["queries"]
    if recall is None:
        print("recall@10 is not measured: a single vector has no others to find")
    else:
        print(f"recall@10 {recall:.3f}, measured on {queries:,} held-out queries")
    return 0


COMMAND = Command(
    name="index",
    about="Build an index of features, for search and near-duplicates among millions.",
    place=(Group.USE, 11),
    add_arguments=add_arguments,
    run=run,
    details=DETAILS,
)
