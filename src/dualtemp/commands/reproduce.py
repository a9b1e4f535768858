"""`dualtemp reproduce`: run the missing runs of the paper's tables and figures. Needs no torch until then."""

import argparse
from typing import Any

from dualtemp.commands.command import Command, Group
from dualtemp.commands.engine_arguments import add_engine, add_missing_runs, engine_options
from dualtemp.commands.paper_arguments import add_request, parse_request, write_reports
from dualtemp.commands.printing import print_note
from dualtemp.errors import UserError
from dualtemp.quantities import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_request(parser)
    add_engine(parser)
    add_missing_runs(parser)


def run(given: dict[str, Any]) -> int:
    """Run what is missing, or print the commands for it; then write the pages. Returns 1 if runs failed."""
    from dualtemp.engines.choice import open_engine
    from dualtemp.grids.missing import find_missing
    from dualtemp.grids.results import Results
    from dualtemp.grids.run_missing import run_missing

    if not given["ids"]:
        raise UserError("name tables or figures, or all: dualtemp reproduce T-reverse; `dualtemp paper` lists them")
    engine = engine_options(given)
    if given["list"] and (given["report"] or given["summary"]):
        raise UserError("--list writes no page: leave --report and --summary out")
    request = parse_request(given)
    found = request.make_plan()
    if found.scale.retired:
        raise UserError(f"scale {request.scale} is retired ({found.scale.retired}): `dualtemp paper` reads its results")
    Results(request.results).refuse_impossible()  # before a set is fetched
    left = find_missing(request, found, given["cell"], given["retry"], fetch=not given["list"])
    for word, reason in left.unavailable.items():
        print_note(f"{word} is left out: {reason}")
    if given["list"]:
        for job in left.jobs:
            print(request.command(job, given["retry"]))
        return 0
    failed = 0
    if left.jobs:
        print(f"{counted(len(left.jobs), 'run')} at scale {request.scale} ({found.scale.about})", flush=True)
        opened = open_engine(engine, request.results / "jobs")
        failed = run_missing(left.jobs, opened, request.results, given["keep_runs"])
    else:
        print(left.describe_no_jobs())
        failed = left.failed if given["cell"] else 0
    write_reports(request, given, left.facts)
    return 1 if failed else 0


COMMAND = Command(
    name="reproduce",
    about="Run what a table or figure still lacks: dualtemp reproduce T-reverse --seeds 5.",
    place=(Group.PAPER, 2),
    add_arguments=add_arguments,
    run=run,
    takes_threads=False,
)
