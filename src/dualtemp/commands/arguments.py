"""Flags that several commands share, and the checks of their values."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.printing import print_note
from dualtemp.errors import UserError
from dualtemp.machine import check_workers

SOURCE = "FOLDER | SET | FILE.npz"
# argparse's parsers and argument groups share only a private base class.
Flags = Any


def add_run(parser: Flags) -> None:
    """RUN, a run's folder."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")


def add_encoder(parser: Flags) -> None:
    """RUN, a run's folder or a pretrained start."""
    text = "the run's folder; or a pretrained start: imagenet, timm:NAME, a folder of timm"
    parser.add_argument("run", type=Path, metavar="RUN", help=text)


def default_out(run: Path, name: str) -> Path:
    """Where a page goes by default: into the run's folder; for a start, which has none, into the current one."""
    return run / name if (run / "config.yaml").is_file() else Path(name)


def add_label_file(parser: Flags) -> None:
    """--labels, a CSV file."""
    text = "labels of the images in a folder: file, label (default: labels.csv of a flat folder, or class folders)"
    parser.add_argument("--labels", type=Path, metavar="FILE.csv", help=text)


def add_device(parser: Flags) -> None:
    """--device."""
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps (default: the best there is)")


def add_workers(parser: Flags) -> None:
    """--workers."""
    parser.add_argument("--workers", type=int, metavar="N", help="processes that read image files")


def add_threads(parser: Flags) -> None:
    """--threads."""
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of a process")


def add_json(parser: Flags, instead: str = "") -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help=f"print JSON{instead}")


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Flags of `train` and `resume` that affect how a run is computed, not its results."""
    group = parser.add_argument_group("how it is computed")
    add_device(group)
    add_workers(group)
    add_threads(group)
    text = "save at least this often within an epoch (default: 5)"
    group.add_argument("--checkpoint-minutes", type=float, default=5.0, metavar="X", help=text)
    group.add_argument("--quiet", action="store_true", help="print nothing but problems")
    group.add_argument(
        "--log", action="append", default=[], metavar="tensorboard|wandb", help="log metrics there too; repeatable"
    )
    group.add_argument("--no-page", dest="page", action="store_false", help="write no report.html and no pictures")


def add_encoding_options(parser: argparse.ArgumentParser) -> None:
    """Flags of the commands that compute features of images."""
    group = parser.add_argument_group("how it is computed")
    add_device(group)
    group.add_argument("--batch", type=int, metavar="N", help="images at once (default: 256)")
    add_workers(group)


def add_searched_images(parser: argparse.ArgumentParser, index: bool = False) -> None:
    """Flags for the images to search; index: whether an index can be used."""
    parser.add_argument("--data", metavar=SOURCE, help="images to search in (default: the run's own)")
    parser.add_argument(
        "--embeddings",
        type=Path,
        metavar="FILE",
        help="take their features from this file or folder of `dualtemp embed`",
    )
    if index:
        text = "search with this index of `dualtemp index`: far less work, finds most (its recall is stated)"
        parser.add_argument("--index", type=Path, metavar="FILE.index", help=text)
    parser.add_argument(
        "--cache",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep features in the cache folder and reuse them (default: yes)",
    )


def add_former_switch(parser: argparse.ArgumentParser, former: str, new: str) -> None:
    """Accept a switch under its former name too, with a note; --help does not show it."""

    class Former(argparse.Action):
        def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
            print_note(f"{former} is now {new}")
            setattr(namespace, self.dest, True)

    dest = new.lstrip("-").replace("-", "_")
    parser.add_argument(former, dest=dest, nargs=0, action=Former, default=False, help=argparse.SUPPRESS)


def encoding_options(given: dict[str, Any]) -> dict[str, Any]:
    """Check the values of `add_encoding_options`; those not given keep the defaults of the function called."""
    check_at_least(given, batch=1)
    check_workers(given["workers"])
    return {name: given[name] for name in ("device", "batch", "workers") if given[name] is not None}


def check_at_least(given: dict[str, Any], **least: int) -> None:
    """Raise UserError if a number is below its least value: `check_at_least(given, jobs=1)`."""
    for name, smallest in least.items():
        if given[name] is not None and given[name] < smallest:
            flag = f"-{name}" if len(name) == 1 else f"--{name}"
            raise UserError(f"{flag} must be at least {smallest}, got {given[name]}")


def check_seed(seed: int | None) -> None:
    """Raise UserError if a seed is out of the generators' range."""
    if seed is not None and not 0 <= seed < 2**63:
        raise UserError(f"--seed must be from 0 to 2^63 - 1, got {seed}")


def check_ending(out: Path | None, *endings: str) -> None:
    """Refuse an --out that does not end in one of `endings`; the first two are suggested."""
    if out is not None and (out.suffix.lower() not in endings or out.is_dir()):
        raise UserError(f"{out}: give --out a file's name that ends with {' or '.join(endings[:2])}")
