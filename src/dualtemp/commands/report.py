"""`dualtemp report`: the page of a run, a page or a table of several. Needs no torch until pictures are taken."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_note
from dualtemp.errors import UserError

PAGES, TABLES = (".html", ".htm"), (".csv", ".tex")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder; several are compared")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.html|.csv|.tex",
        help="a page (default: RUN/report.html, or compare.html for several runs), or a table of the runs' metrics",
    )
    parser.add_argument("--no-pictures", action="store_true", help="take no new pictures of what the run has learned")
    parser.add_argument("--device", default="auto", help="for the pictures: cpu, cuda, cuda:1, mps (default: the best)")


def run(given: dict[str, Any]) -> int:
    """Write a page or a table, and print its path."""
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
    print(_write_run_page(runs[0], out, None if given["no_pictures"] else given["device"]))
    return 0


def _write_run_page(run: Path, out: Path | None, device: str | None) -> Path:
    """Write the page of one run, with new pictures unless `device` is None."""
    from dualtemp.report.run_page import write_run_page
    from dualtemp.runs.record import read_run

    history = read_run(run).history  # a damaged run is reported before pictures are taken
    if device is not None and history:
        from dualtemp.analysis.pictures import take_pictures

        try:
            take_pictures(run, device)
        except UserError as error:  # data that have moved, for example; the rest of the page does not need them
            print_note(f"no new pictures: {error}")
    return write_run_page(run, out)


COMMAND = Command(
    name="report",
    about="Write the page of a run again, or a page that compares several.",
    place=(Group.INSPECT, 2),
    add_arguments=add_arguments,
    run=run,
)
