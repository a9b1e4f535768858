"""`dualtemp near-duplicates`: find almost equal images. Needs no torch until images are read."""

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import (
    add_encoder,
    add_encoding_options,
    add_json,
    add_searched_images,
    check_ending,
    encoding_options,
)
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json, print_note, print_table, print_unreadable

if TYPE_CHECKING:
    from dualtemp.encoder.near_duplicates import NearDuplicates

SHOWN_PAIRS = 40  # rows of the printed table
SHOWN_GROUPS = 200  # groups on the page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_encoder(parser)
    add_searched_images(parser, index=True)
    parser.add_argument("--threshold", type=float, metavar="X", help="least cosine of a pair (default: 0.99)")
    parser.add_argument(
        "--mirrored", action="store_true", help="find mirrored copies too; takes twice the time, not with --embeddings"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="all pairs as FILE.csv, or groups as FILE.html")
    add_json(parser, " instead of a table")
    add_encoding_options(parser)


def run(given: dict[str, Any]) -> int:
    """Print pairs of almost equal images, the most similar first, and write them to a file."""
    options = encoding_options(given)
    check_ending(given["out"], ".csv", ".html", ".htm")
    from dualtemp.encoder.near_duplicates import THRESHOLD, near_duplicates
    from dualtemp.encoder.overwriting import refuse_overwriting
    from dualtemp.progress_bar import image_progress
    from dualtemp.report.search_pages import write_duplicates_page, write_pairs

    refuse_overwriting(given["out"], given["run"], given["data"], given["embeddings"], index=given["index"])
    threshold = THRESHOLD if given["threshold"] is None else given["threshold"]
    words = {name: given[name] for name in ("data", "embeddings", "index", "mirrored", "cache")}
    with image_progress() as progress:
        found = near_duplicates(
            given["run"], threshold=threshold, **words, **options, progress=progress, note=print_note
        )
    out = given["out"]
    if out is not None and out.suffix.lower() == ".csv":
        write_pairs(out, found)
    elif out is not None:
        write_duplicates_page(out, given["run"], found, threshold, SHOWN_GROUPS)
    if given["json"]:
        print_json(_for_json(found, threshold))
        return 0
    _print_pairs(found, threshold)
    print_unreadable(found.unreadable)
    if out is not None:
        print(out)
    return 0


def _for_json(found: "NearDuplicates", threshold: float) -> dict[str, Any]:
    names = found.names
    pairs = [
        {
            "names": [names[i] for i in pair[:2]],
            "s": pair.s,
            "same": pair.same,
            "labels": [found.labels[i] for i in pair[:2]],
            "parts": [found.parts[i] for i in pair[:2]],
        }
        for pair in found.pairs
    ]
    groups = [[names[i] for i in group] for group in found.groups]
    summary = {"images": found.among, "threshold": threshold, "cut": found.cut, "unreadable": found.unreadable}
    if found.recall is not None:
        summary["recall"] = found.recall
    return {**summary, "pairs": pairs, "groups": groups}


def _print_pairs(found: "NearDuplicates", threshold: float) -> None:
    from dualtemp.quantities import counted

    names = found.names
    remarks = Counter(remark for pair in found.pairs for remark in found.remarks(pair))
    print(
        f"{counted(len(found.pairs), 'pair')} among {counted(found.among, 'image')} with a cosine of at least "
        f"{threshold:g}, in {counted(len(found.groups), 'group')}"
        + "".join(f"; {remark}: {count:,}" for remark, count in remarks.items())
    )
    if found.cut:
        print("there are more pairs than are kept, these are the most similar: give a higher --threshold")
    if found.pairs:
        shown = found.pairs[:SHOWN_PAIRS]
        rows = [(f"{p.s:.4f}", names[p.first], names[p.second], ", ".join(found.remarks(p))) for p in shown]
        print_table("", ("cosine", "image", "almost equal to", ""), rows)
        if len(found.pairs) > SHOWN_PAIRS:
            print(f"and {len(found.pairs) - SHOWN_PAIRS:,} more: --out FILE.csv has them all")


COMMAND = Command(
    name="near-duplicates",
    about="List pairs of almost equal images.",
    place=(Group.USE, 3),
    add_arguments=add_arguments,
    run=run,
)
