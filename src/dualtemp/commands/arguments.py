"""Flags that several commands share, and the checks of their values."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.printing import print_note
from dualtemp.errors import UserError
from dualtemp.machine import check_workers

SOURCE = "FOLDER | SET | FILE.npz"
# argparse's parsers and groups of flags have only a private class in common.
Flags = Any


def add_run(parser: Flags) -> None:
    """RUN, a run's folder."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")


def add_encoder(parser: Flags) -> None:
    """RUN, a run's folder or a pretrained start."""
    text = "the run's folder; or imagenet, timm:NAME, a folder of timm: pretrained, without any training"
    parser.add_argument("run", type=Path, metavar="RUN", help=text)


def default_out(run: Path, name: str) -> Path:
    """Where a page goes if nobody says: into the run, or of a start, which has no folder, into the current one."""
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
    group.add_argument("--checkpoint-minutes", type=float, default=5.0, metavar="X", help="default: 5, and every epoch")
    group.add_argument("--quiet", action="store_true", help="print nothing but problems")
    group.add_argument(
        "--log", action="append", default=[], metavar="tensorboard|wandb", help="log figures there too; repeatable"
    )
    group.add_argument("--no-page", dest="page", action="store_false", help="write no report.html and no pictures")


def add_encoding_options(parser: argparse.ArgumentParser) -> None:
    """Flags of the commands that compute features of images."""
    group = parser.add_argument_group("how it is computed")
    add_device(group)
    group.add_argument("--batch", type=int, metavar="N", help="images at once (default: 256)")
    add_workers(group)


def add_searched_images(parser: argparse.ArgumentParser, index: bool = False) -> None:
    """Flags that say among which images to search; index: whether an index can be used."""
    parser.add_argument("--data", metavar=SOURCE, help="images to search in (default: the run's own)")
    parser.add_argument(
        "--embeddings",
        type=Path,
        metavar="FILE",
        help="take their features from this file or folder of `dualtemp embed`",
    )
    if index:
        text = "search by this index of `dualtemp index`: most of them, with its stated recall, in far less work"
        parser.add_argument("--index", type=Path, metavar="FILE.index", help=text)
    parser.add_argument(
        "--cache",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep features in the cache folder and reuse them (default: yes)",
    )


def add_former_switch(parser: argparse.ArgumentParser, former: str, new: str) -> None:
    """Take a switch by its former name too, with a note; --help does not show it."""

    class Former(argparse.Action):
        def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
            print_note(f"{former} is now {new}")
            setattr(namespace, self.dest, True)

    dest = new.lstrip("-").replace("-", "_")
    parser.add_argument(former, dest=dest, nargs=0, action=Former, default=False, help=argparse.SUPPRESS)


def encoding_options(given: dict[str, Any]) -> dict[str, Any]:
    """Check the values of `add_encoding_options`; those not given are left to the function that is called."""
    check_at_least(given, batch=1)
    check_workers(given["workers"])
    return {name: given[name] for name in ("device", "batch", "workers") if given[name] is not None}


def check_at_least(given: dict[str, Any], **least: int) -> None:
    """Refuse numbers below their least value: `check_at_least(given, jobs=1)`."""
    for name, smallest in least.items():
        if given[name] is not None and given[name] < smallest:
            flag = f"-{name}" if len(name) == 1 else f"--{name}"
            raise UserError(f"{flag} must be at least {smallest}, got {given[name]}")


def check_seed(seed: int | None) -> None:
    """Refuse a seed that no generator takes."""
    if seed is not None and not 0 <= seed < 2**63:
        raise UserError(f"--seed must be from 0 to 2^63 - 1, got {seed}")


def check_ending(out: Path | None, *endings: str) -> None:
    """Refuse an --out that does not end in one of `endings`; the first two are suggested."""
    if out is not None and (out.suffix.lower() not in endings or out.is_dir()):
        raise UserError(f"{out}: give --out a file's name that ends with {' or '.join(endings[:2])}")
