"""What `dualtemp paper` and `dualtemp reproduce` do. Needs no torch until runs are made or measured."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError

SCALES = "paper, mini, long, sharp or smoke"


def add_paper_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp paper`."""
    _add_what(parser)
    parser.add_argument("--no-times", action="store_true", help="do not measure how long runs would take here")
    parser.add_argument(
        "--power",
        type=float,
        metavar="POINTS",
        help="the chance to show such a difference, from the results' spread",
    )


def run_paper(given: dict[str, Any]) -> int:
    """List tables and figures, or write the page of what is there."""
    from dualtemp.paper.listing import print_listing

    request = _request({**given, "ids": given["ids"] or ["all"]})
    if (given["summary"] is not None or given["power"] is not None) and not request.results.is_dir():
        raise UserError(
            f"--results {request.results}: no such folder, so nothing to sum up; `dualtemp reproduce` fills it"
        )
    if given["power"] is not None and not given["power"] > 0:
        raise UserError(f"--power {given['power']:g}: give a difference above 0, in points, such as 1")
    if any(given[name] is not None for name in ("report", "summary", "power")):
        facts = _known_facts(request)
        _report(request, given, facts)
        if given["power"] is not None:
            _print_power(request, given["power"], facts)
        return 0
    print_listing(request, times=not given["no_times"])
    return 0


def add_reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `dualtemp reproduce`."""
    _add_what(parser)
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time (default: GPUs, or cores)")
    parser.add_argument("--threads", type=int, metavar="N", help="of the CPU, for a run (default: cores / jobs)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, mps (default: the best there is)")
    parser.add_argument("--list", action="store_true", help="print a command per missing run, and run nothing")
    parser.add_argument("--cell", metavar="KEY", help="only this run, as --list names it")
    parser.add_argument("--retry", action="store_true", help="make failed runs again")
    parser.add_argument("--keep-runs", action="store_true", help="keep run folders in RESULTS/runs")


def run_reproduce(given: dict[str, Any]) -> int:
    """Run what is missing, print the commands that would, or write the page; 1 if runs failed."""
    from dualtemp.paper.reproduce import missing, run_missing

    if not given["ids"]:
        raise UserError("name tables or figures, or all: dualtemp reproduce T-reverse; `dualtemp paper` lists them")
    for name in ("jobs", "threads"):
        if given[name] is not None and given[name] < 1:
            raise UserError(f"--{name} must be at least 1, got {given[name]}")
    request = _request(given)
    found = request.planned()
    left = missing(request, found, given["cell"], given["retry"], fetch=not given["list"])
    for word, reason in left.unavailable.items():
        print(f"dualtemp: {word} is left out: {reason}", file=sys.stderr)
    if given["list"]:
        for job in left.jobs:
            print(request.command(job))
        return 0
    failed = 0
    if left.jobs:
        print(f"{len(left.jobs)} runs at scale {request.scale} ({found.scale.about})", flush=True)
        failed = run_missing(request, left, given["jobs"], given["device"], given["keep_runs"], given["threads"])
    else:
        print("nothing is missing")
    _report(request, given, left.facts)
    return 1 if failed else 0


def _add_what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="ID", help="tables and figures, or all")
    parser.add_argument("--scale", default="mini", help=f"{SCALES} (default: mini)")
    parser.add_argument("--seeds", default="3", metavar="N", help="how many, from 1 on; or which: 1,4 (default: 3)")
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="SET",
        help="another set or folder for all; NAME=SET for the set NAME; paper: also the fingerprint of results",
    )
    parser.add_argument(
        "--validate",
        choices=("test", "held-out"),
        default="test",
        help="measure on test images, or on a tenth of the training images, to choose settings (default: test)",
    )
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: results")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write the page of what is there")
    parser.add_argument("--summary", type=Path, metavar="FILE.md", help="write the claims in a page of Markdown")


def _request(given: dict[str, Any]) -> Any:
    from dualtemp.paper.reproduce import Request, parsed_seeds

    seeds = parsed_seeds(given["seeds"])
    return Request(given["ids"], given["scale"], seeds, given["data"], given["results"], given["validate"])


def _known_facts(request: Any) -> Any:
    """Facts of all data that claims may rest on; says so if the results are of other data."""
    from dualtemp.paper.known_data import known_facts, other_data
    from dualtemp.paper.results import Results

    results = Results(request.results)
    facts = known_facts(replace(request, ids=["all"]).planned(), results)
    asked = {run.settings["data"] for run in request.planned().runs.values()}
    if others := other_data(results, {word: one for word, one in facts.items() if word in asked}):
        print(
            f"dualtemp: none of the results in {request.results} is of this data; there are: {others}", file=sys.stderr
        )
    return facts


def _report(request: Any, given: dict[str, Any], facts: Any = None) -> None:
    from dualtemp.report.paper_page import write_paper_page
    from dualtemp.report.paper_summary import write_paper_summary

    if given["report"] is not None:
        write_paper_page(request, given["report"], facts)
        print(given["report"])
    if given["summary"] is not None:
        write_paper_summary(request, given["summary"], facts)
        print(given["summary"])


def _print_power(request: Any, points: float, facts: Any) -> None:
    from dualtemp.paper.claims import looks_at, pools
    from dualtemp.paper.power import TWO_LOOKS, power_lines
    from dualtemp.paper.results import Results
    from dualtemp.paper.tables import collected

    there = collected(request.planned(), request.seeds, facts, Results(request.results))
    looks = looks_at(request.scale) if looks_at(request.scale).seeds else TWO_LOOKS
    print(
        f"The chance to show a difference of {points:g} points, to show one that is not there, and the margin within\n"
        "which equal cells are shown to be equal four times in five; simulated from the spread of the results."
    )
    told = {
        f"{id} {group}".strip(): power_lines(cells, points, looks)
        for id, table in there.tables.items()
        for group, cells in pools(id, table).items()
        if any(cells)
    }
    for name, lines in told.items():
        print("", name, *lines, sep="\n")
    if not told:
        raise UserError(f"--power: no table of {' '.join(request.ids)} has results that share a variance here")
