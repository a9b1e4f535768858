"""`dualtemp embed`: write the features of images to a file or a folder. Needs no torch until images are read."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import SOURCE, add_encoder, add_encoding_options, add_threads, encoding_options
from dualtemp.commands.command import Command, Group
from dualtemp.commands.engine_arguments import add_engine_choice, engine_options
from dualtemp.commands.printing import print_note, print_unreadable
from dualtemp.errors import UserError
from dualtemp.machine import cores, use_threads

if TYPE_CHECKING:
    from dualtemp.encoder.embed import Embedded

DETAILS = """\
Several processes fill a folder without communicating, each computing its own parts:

  torchrun --nproc-per-node 4 -m dualtemp embed RUN --data photos --out features
  dualtemp embed RUN --data photos --out features --share 3/8     part 3 of parts 0 to 7, on any machine
  dualtemp embed RUN --data photos --out features --parts 64 --on slurm --slurm partition=gpu --device cuda

After an interruption, the same command continues. search, near-duplicates, select and index read a folder like one
file."""


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
    text = "compute the parts at once: local processes, Slurm or Ray (default: in this process)"
    add_engine_choice(group, "parts", text, None)
    add_threads(group)
    add_encoding_options(parser)


def run(given: dict[str, Any]) -> int:
    """Write the features, and print which images could not be read."""
    options = encoding_options(given)
    began = time.monotonic()
    words = {name: given[name] for name in ("data", "out", "part", "quick", "dtype")}
    made = (_embed_here if given["on"] is None else _embed_on_engine)(given, words, options)
    seconds = time.monotonic() - began
    print(f"{made.path}: {made.images:,} images, {made.features} features each, in {seconds:.1f} s")
    print_unreadable(made.unreadable)
    return 0


def _embed_here(given: dict[str, Any], words: dict[str, Any], options: dict[str, Any]) -> "Embedded":
    from dualtemp.encoder.embed import embed
    from dualtemp.progress_bar import image_progress

    if given["jobs"] is not None or given["slurm"]:
        raise UserError("--jobs and --slurm are for several processes: add --on local, slurm or ray, or leave them out")
    use_threads(given["threads"])
    divided = {name: given[name] for name in ("share", "parts")}
    with image_progress() as progress:
        return embed(given["run"], **words, **divided, **options, progress=progress, note=print_note)


def _embed_on_engine(given: dict[str, Any], words: dict[str, Any], options: dict[str, Any]) -> "Embedded":
    from dualtemp.encoder.embed_on_engine import count_parts, embed_on
    from dualtemp.engines.choice import open_engine
    from dualtemp.progress_bar import image_progress

    if given["share"] is not None:
        raise UserError("--share names one part for this process, --on computes all of them: give one of the two")
    engine, out = engine_options(given), words["out"]
    begun = given["jobs"] or (cores() if given["on"] == "local" else None)
    parts = count_parts(out, given["parts"], begun)
    options = {name: value for name, value in options.items() if name != "device"}
    with image_progress(what="parts") as progress:
        opened = open_engine(engine, out / ".jobs")
        made = embed_on(opened, given["run"], parts=parts, progress=progress, **words, **options)
    if made.resumed:
        print_note(f"continuing: {made.resumed:,} of {made.images:,} rows were computed before")
    return made


COMMAND = Command(
    name="embed",
    about="Write the features of a folder's images: parquet, npz or csv.",
    place=(Group.USE, 1),
    add_arguments=add_arguments,
    run=run,
    details=DETAILS,
    takes_threads=False,
)
