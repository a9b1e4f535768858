"""`dualtemp embed`: write the features of images to a file. Needs no torch until images are read."""

import argparse
import time
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import SOURCE, add_encoder, add_encoding_options, encoding_options
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_note, print_unreadable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_encoder(parser)
    parser.add_argument("--data", metavar=SOURCE, help="the images (default: the run's own)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="FILE.parquet, .npz or .csv")
    parser.add_argument("--part", choices=("train", "test", "all"), default="all", help="of the images (default: all)")
    add_encoding_options(parser)


def run(given: dict[str, Any]) -> int:
    """Write the features, and print which images could not be read."""
    options = encoding_options(given)
    from dualtemp.encoder.embed import embed
    from dualtemp.progress_bar import image_progress

    began = time.monotonic()
    words = {name: given[name] for name in ("data", "out", "part")}
    with image_progress() as progress:
        made = embed(given["run"], **words, **options, progress=progress, note=print_note)
    seconds = time.monotonic() - began
    print(f"{made.path}: {made.images:,} images, {made.features} features each, in {seconds:.1f} s")
    print_unreadable(made.unreadable)
    return 0


COMMAND = Command(
    name="embed",
    about="Write the features of a folder's images: parquet, npz or csv.",
    place=(Group.USE, 1),
    add_arguments=add_arguments,
    run=run,
)
