"""What `dualtemp evaluate` does. Needs no torch until it measures."""

import argparse
import json
from pathlib import Path
from typing import Any

from dualtemp.config import MEASURED_ON
from dualtemp.errors import UserError
from dualtemp.evaluation.evaluation_file import ENCODERS, MEASURES, NAMES


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp evaluate`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--data", metavar="FOLDER | SET | FILE.npz", help="other labelled images (default: the run's validation set)"
    )
    parser.add_argument("--only", metavar="A,B", help=f"some of {', '.join(MEASURES)} (default: all)")
    parser.add_argument(
        "--fine-tune",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="fine-tuning takes longest; leave it out",
    )
    parser.add_argument(
        "--fine-tune-epochs", type=int, metavar="N", help="default: such that 100,000 images are seen, from 3 to 30"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of draws and fine-tuning (default: 0)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps (default: the best there is)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that read photographs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="say nothing but the results")


def run_evaluate(given: dict[str, Any]) -> int:
    """Measure a run and print a table, or JSON; what is going on is told on standard error."""
    if given["seed"] < 0:
        raise UserError(f"--seed must be at least 0, got {given['seed']}")
    if given["workers"] is not None and given["workers"] < 0:
        raise UserError(f"--workers must be at least 0, got {given['workers']}")
    from dualtemp.evaluation.evaluate import evaluate
    from dualtemp.progress_bar import image_progress

    as_json = given.pop("json")
    with image_progress(given["quiet"]) as told:
        found = evaluate(**given, told=told)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        print_table(found)
    return 0


def print_table(found: dict[str, Any]) -> None:
    """Top-1 accuracies: a row a measure, a column an encoder."""
    from rich.console import Console
    from rich.table import Table

    cells = {(row["name"], row["encoder"]): row for row in found["measured"]}
    columns = [encoder for encoder in ENCODERS if any(there == encoder for _, there in cells)]
    asked = f"test images of {found['data']}"
    if found["data"] == "validation":
        asked = MEASURED_ON["held-out"] if found["part"] == "held-out" else "validation images"
    title = f"right, % of {found['images']:,} {asked}; {found['classes']} classes"
    table = Table("", "labels", title=title, title_justify="left", title_style="", box=None, pad_edge=False)
    table.padding = (0, 1, 0, 0)  # five encoders fit into 80 columns
    table.columns[0].no_wrap = True
    table.columns[1].justify = "right"
    for encoder in columns:
        table.add_column("while training" if encoder == "online" else encoder, justify="right")
    for name in NAMES:
        rows = [cells.get((name, encoder)) for encoder in columns]
        labels = next((row["labels"] for row in (cells.get((name, encoder)) for encoder in ENCODERS) if row), None)
        if labels is not None:
            table.add_row(name, f"{labels:,}", *(_cell(row) for row in rows))
    console = Console(highlight=False)
    console.print(table)
    console.print(f"kept in {found['run']}/evaluation.json and on its page, report.html", markup=False, soft_wrap=True)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return f"{row['top1']:.2f}" + (f" ±{row['deviation']:.1f}" if row.get("deviation") is not None else "")
