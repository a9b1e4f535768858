"""`dualtemp evaluate`: measure a run or a start with labeled images. Needs no torch until it measures."""

import argparse
from typing import Any

from dualtemp.commands.arguments import (
    SOURCE,
    add_device,
    add_encoder,
    add_json,
    add_label_file,
    add_workers,
    check_seed,
)
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json
from dualtemp.machine import check_workers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from dualtemp.runs.evaluated_measures import WORDS

    add_encoder(parser)
    parser.add_argument("--data", metavar=SOURCE, help="other labeled images (default: the run's validation set)")
    add_label_file(parser)
    parser.add_argument("--only", metavar="A,B", help=f"some of {', '.join(WORDS)} (default: all)")
    parser.add_argument(
        "--fine-tune",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure by fine-tuning too, which takes longest (default: yes)",
    )
    parser.add_argument(
        "--fine-tune-epochs", type=int, metavar="N", help="default: enough to see 100,000 images, from 3 to 30"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of draws and fine-tuning (default: 0)")
    add_device(parser)
    add_workers(parser)
    add_json(parser)
    parser.add_argument("--quiet", action="store_true", help="print only the results")


def run(given: dict[str, Any]) -> int:
    """Measure a run, with progress on standard error, and print a table or JSON."""
    check_seed(given["seed"])
    check_workers(given["workers"])
    from dualtemp.evaluation.evaluate import evaluate
    from dualtemp.progress_bar import image_progress

    as_json = given.pop("json")
    with image_progress(given["quiet"]) as progress:
        found = evaluate(**given, progress=progress)
    if as_json:
        print_json(found)
    else:
        _print_accuracies(found)
    return 0


def _print_accuracies(found: dict[str, Any]) -> None:
    """Print top-1 accuracies: one row per measure, one column per encoder."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dualtemp.config import MEASURED_ON
    from dualtemp.runs.evaluated_measures import ENCODERS, NAMES, encoder_title

    cells = {(row["name"], row["encoder"]): row for row in found["measured"]}
    columns = [encoder for encoder in ENCODERS if any(there == encoder for _, there in cells)]
    asked = f"test images of {found['data']}"
    if found["data"] == "validation":
        asked = MEASURED_ON["held-out"] if found["part"] == "held-out" else "validation images"
    title = f"right, % of {found['images']:,} {asked}; {found['classes']} classes"
    table = Table("", "labels", title=escape(title), title_justify="left", title_style="", box=None, pad_edge=False)
    table.padding = (0, 1, 0, 0)  # five encoders fit into 80 columns
    table.columns[0].no_wrap = True
    table.columns[1].justify = "right"
    for encoder in columns:
        table.add_column(encoder_title(encoder), justify="right")
    for name in NAMES:
        rows = [cells.get((name, encoder)) for encoder in columns]
        labels = next((row["labels"] for row in (cells.get((name, encoder)) for encoder in ENCODERS) if row), None)
        if labels is not None:
            table.add_row(name, f"{labels:,}", *(_accuracy(row) for row in rows))
    console = Console(highlight=False)
    console.print(table)
    if not found.get("made"):  # of a start
        return
    console.print(f"kept in {found['run']}/evaluation.json and on its page, report.html", markup=False, soft_wrap=True)


def _accuracy(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return f"{row['top1']:.2f}" + (f" ±{row['deviation']:.1f}" if row.get("deviation") is not None else "")


COMMAND = Command(
    name="evaluate",
    about="Measure a run: kNN, linear probe, few labels, fine-tuning.",
    place=(Group.INSPECT, 5),
    add_arguments=add_arguments,
    run=run,
)
