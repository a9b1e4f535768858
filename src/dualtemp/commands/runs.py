"""`dualtemp runs`: list runs. Needs no torch."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import add_json
from dualtemp.commands.command import Command, Group
from dualtemp.errors import UserError

SORTS = "name, method, data, tau_alpha, tau_beta, status, epoch, probe, knn or date"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="where runs are (default: runs)")
    parser.add_argument("--sort", default="name", metavar="BY", help=f"{SORTS} (default: name)")
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    add_json(parser)


def run(given: dict[str, Any]) -> int:
    """List the runs below some folders."""
    from dualtemp.report.runs_list import ORDERS, print_runs, runs_below, sort_runs

    by = given["sort"].lower().replace("-", "_")
    if by not in ORDERS:
        raise UserError(f"--sort {given['sort']}: choose among {SORTS}")
    folders = given["folders"] or [Path("runs")]
    rows = sort_runs(runs_below(folders), by, given["reverse"])
    if not rows and not given["json"]:
        print(f"no runs below {', '.join(map(str, folders))}; `dualtemp train --out runs/NAME ...` makes one")
        return 0
    print_runs(rows, given["json"])
    return 0


COMMAND = Command(
    name="runs",
    about="List runs: method, data, temperatures, status, probe and kNN.",
    place=(Group.INSPECT, 1),
    add_arguments=add_arguments,
    run=run,
    takes_threads=False,
)
