"""`dualtemp paper`: list tables and figures, or write the page of their results. Needs no torch."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dualtemp.commands.command import Command, Group
from dualtemp.commands.paper_arguments import add_request, parse_request, write_reports
from dualtemp.commands.printing import print_note
from dualtemp.errors import UserError

if TYPE_CHECKING:
    from dualtemp.grids.results import DataFacts
    from dualtemp.paper.reproduce import Request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_request(parser)
    parser.add_argument("--no-times", action="store_true", help="do not measure how long runs would take here")
    parser.add_argument(
        "--power",
        type=float,
        metavar="POINTS",
        help="the chance to detect a difference of this many points, from the results' spread",
    )


def run(given: dict[str, Any]) -> int:
    """List tables and figures, or write the page of what is there."""
    from dualtemp.paper.listing import print_listing

    request = parse_request({**given, "ids": given["ids"] or ["all"]})
    if (given["summary"] is not None or given["power"] is not None) and not request.results.is_dir():
        raise UserError(
            f"--results {request.results}: no such folder, so nothing to sum up; `dualtemp reproduce` fills it"
        )
    if given["power"] is not None and not given["power"] > 0:
        raise UserError(f"--power {given['power']:g}: give a difference above 0, in points, such as 1")
    if any(given[name] is not None for name in ("report", "summary", "power")):
        facts = _known_facts(request)
        write_reports(request, given, facts)
        if given["power"] is not None:
            _print_power(request, given["power"], facts)
        return 0
    print_listing(request, times=not given["no_times"])
    return 0


def _known_facts(request: "Request") -> "Mapping[str, DataFacts]":
    """Return facts of all data that claims may use; print a note if all results are of other data."""
    from dataclasses import replace

    from dualtemp.grids.known_data import describe_other_data, known_facts
    from dualtemp.grids.results import Results

    results = Results(request.results)
    facts = known_facts(replace(request, ids=["all"]).make_plan(), results)
    asked = {run.settings["data"] for run in request.make_plan().runs.values()}
    if others := describe_other_data(results, {word: one for word, one in facts.items() if word in asked}):
        print_note(f"none of the results in {request.results} is of this data; there are: {others}")
    return facts


def _print_power(request: "Request", points: float, facts: "Mapping[str, DataFacts]") -> None:
    from dualtemp.grids.power import TWO_LOOKS, describe_power
    from dualtemp.grids.results import Results
    from dualtemp.grids.tables import collect_results
    from dualtemp.paper.claims import planned_looks, variance_pools

    there = collect_results(request.make_plan(), request.seeds, facts, Results(request.results))
    looks = planned_looks(request.scale) if planned_looks(request.scale).seeds else TWO_LOOKS
    print(
        f"The chance to show a difference of {points:g} points, to show one that is not there, and the margin within\n"
        "which equal cells are shown to be equal four times in five; simulated from the spread of the results."
    )
    lines_of = {
        f"{id} {group}".strip(): describe_power(cells, points, looks)
        for id, table in there.tables.items()
        for group, cells in variance_pools(id, table).items()
        if any(cells)
    }
    for name, lines in lines_of.items():
        print("", name, *lines, sep="\n")
    if not lines_of:
        raise UserError(f"--power: no table of {' '.join(request.ids)} has results that share a variance here")


COMMAND = Command(
    name="paper",
    about="List the paper's tables and figures: runs, what is done, expected time; or their page.",
    place=(Group.PAPER, 1),
    add_arguments=add_arguments,
    run=run,
    takes_threads=False,
)
