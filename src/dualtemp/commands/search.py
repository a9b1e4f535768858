"""`dualtemp search`: find the images nearest to a photo. Needs no torch until images are read."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import (
    add_encoder,
    add_encoding_options,
    add_json,
    add_searched_images,
    check_at_least,
    check_ending,
    default_out,
    encoding_options,
)
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json, print_note, print_table, print_unreadable

if TYPE_CHECKING:
    from dualtemp.encoder.search import Found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_encoder(parser)
    parser.add_argument("photos", nargs="+", type=Path, metavar="PHOTO", help="image files")
    add_searched_images(parser, index=True)
    parser.add_argument("-k", type=int, default=12, metavar="N", help="images to find for each (default: 12)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.html",
        help="the page (default: RUN/search.html, search.html of a start; with --json, none)",
    )
    add_json(parser, " instead of a table")
    add_encoding_options(parser)


def run(given: dict[str, Any]) -> int:
    """Print the images nearest to each photo, and write a page of them."""
    options = encoding_options(given)
    check_at_least(given, k=1)
    check_ending(given["out"], ".html", ".htm")
    from dualtemp.encoder.search import search
    from dualtemp.progress_bar import image_progress
    from dualtemp.quantities import counted

    words = {name: given[name] for name in ("data", "embeddings", "index", "k", "cache")}
    with image_progress() as progress:
        found = search(given["run"], given["photos"], **words, **options, progress=progress, note=print_note)
    out = given["out"] or (None if given["json"] else default_out(given["run"], "search.html"))
    if out is not None:
        from dualtemp.report.search_pages import write_found_page

        write_found_page(out, given["run"], found)
    if given["json"]:
        print_json(_for_json(found))
        return 0
    for photo, each in zip(found.photos, found.near, strict=True):
        rows = [(str(rank), f"{near.s:.4f}", near.name, near.label or "") for rank, near in enumerate(each, 1)]
        print_table(f"nearest to {photo}, of {counted(found.among, 'image')}", ("", "cosine", "name", "label"), rows)
    print_unreadable(found.unreadable)
    print(out)
    return 0


def _for_json(found: "Found") -> dict[str, Any]:
    answers = [
        {"photo": str(photo), "found": [near._asdict() for near in each]}
        for photo, each in zip(found.photos, found.near, strict=True)
    ]
    return {"among": found.among, "photos": answers, "unreadable": found.unreadable}


COMMAND = Command(
    name="search",
    about="Find the images nearest to a photo.",
    place=(Group.USE, 2),
    add_arguments=add_arguments,
    run=run,
)
