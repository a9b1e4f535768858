"""`dualtemp runs`: list runs. Needs no torch."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import add_json
from dualtemp.commands.command import Command, Group
from dualtemp.errors import UserError

SORTS = "name, method, data, tau_alpha, tau_beta, seed, status, epoch, probe, knn, forecast or date"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="where runs are (default: runs)")
    parser.add_argument("--sort", default="name", metavar="BY", help=f"{SORTS} (default: name)")
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    parser.add_argument("--group", action="store_true", help="a line per settings: mean and interval over seeds")
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
    if given["group"]:
        from dualtemp.report.run_groups import group_rows
        from dualtemp.report.runs_list import ACCURACIES, print_groups

        groups = group_rows(rows, list(ACCURACIES))
        # Groups sort by their mean accuracy; by other columns they stay in the order of their first runs.
        print_groups(sort_runs(groups, by, given["reverse"]) if by in ACCURACIES else groups, given["json"])
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
