"""What `dualtemp embed`, `search` and `near-duplicates` do. Needs no torch until images are looked at."""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError

SOURCE = "FOLDER | SET | FILE.npz"
SHOWN_PAIRS = 40  # lines of a table before it is cut
SHOWN_GROUPS = 200  # on a page


def add_embed_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp embed`."""
    _add_run(parser)
    parser.add_argument("--data", metavar=SOURCE, help="the images (default: the run's own)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="FILE.parquet, .npz or .csv")
    parser.add_argument("--part", choices=("train", "test", "all"), default="all", help="of the images (default: all)")
    _add_how(parser)


def run_embed(given: dict[str, Any]) -> int:
    """Write features of images to a file, and tell which images could not be read."""
    _check_how(given)
    from dualtemp.encoder.embed import embed
    from dualtemp.progress_bar import image_progress

    began = time.monotonic()
    with image_progress() as told:
        made = embed(
            given["run"],
            data=given["data"],
            out=given["out"],
            part=given["part"],
            **_how(given),
            told=told,
            note=_note,
        )
    seconds = time.monotonic() - began
    print(f"{made.path}: {made.images:,} images, {made.features} features each, in {seconds:.1f} s")
    _tell_unreadable(made.unreadable)
    return 0


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp search`."""
    _add_run(parser)
    parser.add_argument("photos", nargs="+", type=Path, metavar="PHOTO", help="image files to look for")
    _add_bank(parser)
    parser.add_argument("-k", type=int, default=12, metavar="N", help="images to find for each (default: 12)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.html", help="the page (default: RUN/search.html; with --json, none)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_how(parser)


def run_search(given: dict[str, Any]) -> int:
    """Print the nearest images of each photograph, and write a page of them."""
    _check_how(given)
    _check_ending(given["out"], ".html", ".htm")
    from dualtemp.encoder.search import search
    from dualtemp.progress_bar import image_progress

    with image_progress() as told:
        found = search(
            given["run"],
            given["photos"],
            data=given["data"],
            embeddings=given["embeddings"],
            k=given["k"],
            **_how(given),
            told=told,
            cache=given["cache"],
            note=_note,
        )
    out = given["out"] or (None if given["json"] else given["run"] / "search.html")
    if out is not None:
        from dualtemp.encoder.search_pages import write_found_page

        write_found_page(out, given["run"], found)
    if given["json"]:
        answers = [
            {"photo": str(photo), "found": [near._asdict() for near in each]}
            for photo, each in zip(found.photos, found.near, strict=True)
        ]
        print(json.dumps({"among": found.among, "photos": answers, "unreadable": found.unreadable}, indent=1))
        return 0
    for photo, each in zip(found.photos, found.near, strict=True):
        rows = [(str(rank), f"{near.s:.4f}", near.name, near.label or "") for rank, near in enumerate(each, 1)]
        _print_table(f"nearest to {photo}, of {found.among:,} images", ("", "cosine", "name", "label"), rows)
    _tell_unreadable(found.unreadable)
    print(out)
    return 0


def add_near_duplicates_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp near-duplicates`."""
    _add_run(parser)
    _add_bank(parser)
    parser.add_argument("--threshold", type=float, metavar="X", help="least cosine of a pair (default: 0.99)")
    parser.add_argument(
        "--mirrored", action="store_true", help="find mirrored copies too; takes twice the time, not with --embeddings"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="all pairs as FILE.csv, or groups as FILE.html")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_how(parser)


def run_near_duplicates(given: dict[str, Any]) -> int:
    """Print pairs of almost equal images, the most similar first, and write them to a file."""
    _check_how(given)
    _check_ending(given["out"], ".csv", ".html", ".htm")
    from dualtemp.encoder.near_duplicates import THRESHOLD, near_duplicates
    from dualtemp.encoder.search_pages import write_duplicates_page, write_pairs
    from dualtemp.progress_bar import image_progress
    from dualtemp.quantities import counted

    threshold = THRESHOLD if given["threshold"] is None else given["threshold"]
    with image_progress() as told:
        found = near_duplicates(
            given["run"],
            data=given["data"],
            embeddings=given["embeddings"],
            threshold=threshold,
            mirrored=given["mirrored"],
            **_how(given),
            told=told,
            cache=given["cache"],
            note=_note,
        )
    out, names = given["out"], found.names
    if out is not None:
        if out.suffix.lower() == ".csv":
            write_pairs(out, found)
        else:
            write_duplicates_page(out, given["run"], found, threshold, SHOWN_GROUPS)
    if given["json"]:
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
        grouped = [[names[i] for i in group] for group in found.groups]
        told_all = {"images": len(names), "threshold": threshold, "cut": found.cut, "unreadable": found.unreadable}
        print(json.dumps({**told_all, "pairs": pairs, "groups": grouped}, indent=1))
        return 0
    remarks = Counter(remark for pair in found.pairs for remark in found.remarks(pair))
    print(
        f"{counted(len(found.pairs), 'pair')} among {counted(len(names), 'image')} with a cosine of at least "
        f"{threshold:g}, in {counted(len(found.groups), 'group')}"
        + "".join(f"; {remark}: {count:,}" for remark, count in remarks.items())
    )
    if found.cut:
        print("there are more pairs than are kept, these are the most similar: give a higher --threshold")
    if found.pairs:
        shown = found.pairs[:SHOWN_PAIRS]
        rows = [(f"{p.s:.4f}", names[p.first], names[p.second], ", ".join(found.remarks(p))) for p in shown]
        _print_table("", ("cosine", "image", "almost equal to", ""), rows)
        if len(found.pairs) > SHOWN_PAIRS:
            print(f"and {len(found.pairs) - SHOWN_PAIRS:,} more: --out FILE.csv has them all")
    _tell_unreadable(found.unreadable)
    if out is not None:
        print(out)
    return 0


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")


def _add_bank(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar=SOURCE, help="images to look among (default: the run's own)")
    parser.add_argument(
        "--embeddings", type=Path, metavar="FILE", help="take their features from this file of `dualtemp embed`"
    )
    parser.add_argument(
        "--cache",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep features in the cache folder and take them from there (default: yes)",
    )


def _add_how(parser: argparse.ArgumentParser) -> None:
    how = parser.add_argument_group("how it is computed")
    how.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps (default: the best there is)")
    how.add_argument("--batch", type=int, metavar="N", help="images at once (default: 256)")
    how.add_argument("--workers", type=int, metavar="N", help="processes that read photographs")


def _check_how(given: dict[str, Any]) -> None:
    for name, least in (("batch", 1), ("workers", 0), ("k", 1)):
        if given.get(name) is not None and given[name] < least:
            raise UserError(f"{'-' if name == 'k' else '--'}{name} must be at least {least}, got {given[name]}")


def _how(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("device", "batch", "workers") if given[name] is not None}


def _check_ending(out: Path | None, *endings: str) -> None:
    if out is not None and (out.suffix.lower() not in endings or out.is_dir()):
        raise UserError(f"{out}: give --out a file's name that ends with {' or '.join(endings[:2])}")


def _note(text: str) -> None:
    print(f"dualtemp: {text}", file=sys.stderr, flush=True)


def _print_table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console(highlight=False)
    if title:
        console.print(f"[bold]{escape(title)}[/bold]", soft_wrap=True)
    console.print(table)


def _tell_unreadable(unreadable: dict[str, str]) -> None:
    if unreadable:
        from dualtemp.quantities import counted

        print(f"{counted(len(unreadable), 'file')} could not be read and left out:")
        for name, reason in unreadable.items():
            print(f"  {name}: {reason}")
