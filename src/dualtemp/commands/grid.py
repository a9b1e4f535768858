"""`dualtemp grid`: run a table of settings with several seeds, and compare its cells. Needs no torch until it runs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.command import Command, Group
from dualtemp.commands.engine_arguments import add_engine, add_missing_runs, engine_options
from dualtemp.commands.printing import print_note
from dualtemp.errors import UserError
from dualtemp.quantities import counted

if TYPE_CHECKING:
    from dualtemp.grids.grid_request import GridRequest
    from dualtemp.grids.measured_grid import MeasuredGrid

OUTPUTS = "FILE.html|.csv|.tex|.svg|.pdf"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("file", type=Path, metavar="FILE.yaml", help="the grid: rows and columns of settings, seeds")
    parser.add_argument("--seeds", metavar="N", help="how many seeds, from 1 on; or which: 1,4 (default: the grid's)")
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="SET",
        help="another set or folder for all; NAME=SET for the set NAME",
    )
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="default: results, beside the grid")
    parser.add_argument(
        "--out",
        type=Path,
        action="append",
        default=[],
        metavar=OUTPUTS,
        help="write a page, a table or a figure; repeatable",
    )
    add_engine(parser)
    add_missing_runs(parser)
    parser.add_argument("--no-run", action="store_true", help="run nothing: show and write what is there")


def run(given: dict[str, Any]) -> int:
    """Run the grid's missing runs, print its table, and write the files of --out. Returns 1 if runs failed."""
    from dualtemp.engines.choice import open_engine
    from dualtemp.grids.grid_page import check_outputs, write_grid
    from dualtemp.grids.grid_request import GridRequest
    from dualtemp.grids.listed_command import words_for_plugins
    from dualtemp.grids.missing import find_missing
    from dualtemp.grids.results import Results
    from dualtemp.grids.run_missing import run_missing

    engine = engine_options(given)
    for flag in ("list", "cell"):
        if given[flag] and given["out"]:
            raise UserError(f"--{flag} writes no table: leave --out out")
    if given["cell"] and given["no_run"]:
        raise UserError("--cell makes one run: leave --no-run out")
    check_outputs(given["out"])
    request = GridRequest.parse(given["file"], given["seeds"], given["data"], given["results"])
    plan = request.make_plan()
    Results(request.results).refuse_impossible()
    left = find_missing(request, plan, given["cell"], given["retry"], fetch=not given["list"])
    for word, reason in left.unavailable.items():
        print_note(f"{word} is left out: {reason}")
    if given["list"]:
        for job in left.jobs:
            print(request.command(job, given["retry"]))
        return 0
    failed = 0
    if left.jobs and not given["no_run"]:
        print(counted(len(left.jobs), "run") + ("" if given["cell"] else f" of {left.wanted:,}"), flush=True)
        opened = open_engine(engine, request.results / "jobs")
        failed = run_missing(left.jobs, opened, request.results, given["keep_runs"])
    elif given["cell"]:
        print(left.describe_no_jobs())
        failed = left.failed
    if given["cell"] is None:
        found = request.measure(plan, left.facts)
        _print_grid(found, request)
        for path in given["out"]:
            for written in write_grid(found, path, [*request.words(), *words_for_plugins()]):
                print(written)
    return 1 if failed else 0


def _print_grid(found: "MeasuredGrid", request: "GridRequest") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dualtemp.grids.grid_table import describe_cell, describe_contrast, describe_intervals

    a, console = found.grid.artifact, Console(highlight=False, soft_wrap=True)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(escape(a.row_title))
    for column in a.columns:
        table.add_column(escape(column), justify="right", no_wrap=True)
    for row in a.rows:
        table.add_row(*map(escape, [row, *(describe_cell(found, row, column) for column in a.columns)]))
    console.print(table)
    for c in found.contrasts:
        difference, interval, p, p_of_all = describe_contrast(c, found.digits)
        word = c.interval.why or ("clear" if c.is_clear(found.confidence) else "not clear")
        text = f"{c.where}: {c.first} - {c.second}  {difference} {interval}  p {p}, of all {p_of_all}  {word}"
        console.print(escape(text.removeprefix(": ")))
    for v in found.verdicts:
        console.print(escape(f"{v.claim}: {v.says}: {v.verdict} ({v.why})"))
    console.print(escape(f"{describe_intervals(found)} {found.runs} of {found.wanted} runs, in {request.results}."))


COMMAND = Command(
    name="grid",
    about="Run settings x seeds and compare them: dualtemp grid FILE.yaml --seeds 5.",
    place=(Group.TRAIN, 4),
    add_arguments=add_arguments,
    run=run,
    takes_threads=False,
)
