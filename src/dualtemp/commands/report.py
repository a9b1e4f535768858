"""What `dualtemp runs` and `dualtemp report` do. Needs no torch until pictures are taken."""

import argparse
import sys
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError

PAGES, TABLES = (".html", ".htm"), (".csv", ".tex")
SORTS = "name, method, data, tau_alpha, tau_beta, status, epoch, probe, knn or date"


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp runs`."""
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="where runs are (default: runs)")
    parser.add_argument("--sort", default="name", metavar="BY", help=f"{SORTS} (default: name)")
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run_runs(given: dict[str, Any]) -> int:
    """List the runs below some folders."""
    from dualtemp.report.runs_list import ORDERS, ordered, print_runs, runs_below

    by = given["sort"].lower().replace("-", "_")
    if by not in ORDERS:
        raise UserError(f"--sort {given['sort']}: choose among {SORTS}")
    folders = given["folders"] or [Path("runs")]
    rows = ordered(runs_below(folders), by, given["reverse"])
    if not rows and not given["json"]:
        print(f"no runs below {', '.join(map(str, folders))}; `dualtemp train --out runs/NAME ...` makes one")
        return 0
    print_runs(rows, given["json"])
    return 0


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp report`."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder; several are compared")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.html|.csv|.tex",
        help="a page (default: RUN/report.html, or compare.html for several runs), or a table of the runs' figures",
    )
    parser.add_argument("--no-pictures", action="store_true", help="take no new pictures of what the run has learned")
    parser.add_argument("--device", default="auto", help="for the pictures: cpu, cuda, cuda:1, mps (default: the best)")


def run_report(given: dict[str, Any]) -> int:
    """Write a run's page anew, with new pictures, one page of several runs, or a table; say where it is."""
    runs, out = given["runs"], given["out"]
    if out is not None and out.is_dir():
        raise UserError(f"--out {out} is a folder: name a file, such as {out / 'compare.html'}")
    if out is not None and out.suffix.lower() in TABLES:
        from dualtemp.report.runs_table import write_runs_table

        print(write_runs_table(runs, out))
        return 0
    if out is not None and out.suffix.lower() not in PAGES:
        raise UserError(f"--out {out}: give a name that ends with {', '.join((*PAGES[:1], *TABLES))}")
    if len(runs) > 1:
        from dualtemp.report.compare_page import write_compare_page

        print(write_compare_page(runs, out or Path("compare.html")))
        return 0
    from dualtemp.report.run_page import write_run_page
    from dualtemp.runs.record import read_run

    run = read_run(runs[0])  # what is damaged is said before pictures are taken
    if not given["no_pictures"] and run.history:
        from dualtemp.analysis.pictures import take_pictures

        try:
            take_pictures(runs[0], given["device"])
        except UserError as error:  # such as data that have moved: the rest of the page needs none of it
            print(f"dualtemp: no new pictures: {error}", file=sys.stderr)
    print(write_run_page(runs[0], out))
    return 0
