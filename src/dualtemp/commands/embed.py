"""`dualtemp embed`: write the features of images to a file or a folder. Needs no torch until images are read."""

import argparse
import time
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import SOURCE, add_encoder, add_encoding_options, encoding_options
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_note, print_unreadable

DETAILS = """\
Several processes fill a folder without talking to each other, each its own parts:

  torchrun --nproc-per-node 4 -m dualtemp embed RUN --data photos --out features
  dualtemp embed RUN --data photos --out features --share 3/8     part 3 of 0 to 7, on any machine

Whatever is killed continues with the same command. A folder is read as one file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_encoder(parser)
    parser.add_argument("--data", metavar=SOURCE, help="the images (default: the run's own)")
    text = "FILE.parquet, .npz or .csv; or a FOLDER, which several processes fill"
    parser.add_argument("--out", type=Path, required=True, metavar="FILE | FOLDER", help=text)
    parser.add_argument("--part", choices=("train", "test", "all"), default="all", help="of the images (default: all)")
    parser.add_argument(
        "--quick", action="store_true", help="decode files no larger than needed: faster, and features differ a little"
    )
    parser.add_argument(
        "--dtype", choices=("float32", "float16"), default="float32", help="float16: half the size (default: float32)"
    )
    group = parser.add_argument_group("several processes")
    group.add_argument("--share", metavar="I/N", help="compute part I, from 0, of N parts of a folder")
    group.add_argument(
        "--parts", type=int, metavar="N", help="parts of a folder (default: as begun, or one a process of torchrun)"
    )
    add_encoding_options(parser)


def run(given: dict[str, Any]) -> int:
    """Write the features, and print which images could not be read."""
    options = encoding_options(given)
    from dualtemp.encoder.embed import embed
    from dualtemp.progress_bar import image_progress

    began = time.monotonic()
    words = {name: given[name] for name in ("data", "out", "part", "quick", "dtype", "share", "parts")}
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
    details=DETAILS,
)
