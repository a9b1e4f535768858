"""What `dualtemp paper` and `dualtemp reproduce` share: the choice of runs, and the pages of their results."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualtemp.grids.results import DataFacts
    from dualtemp.paper.reproduce import Request

SCALES = "paper, unequal, mini or smoke"
SEEDS = 3  # at scales without a plan of looks


def add_request(parser: argparse.ArgumentParser) -> None:
    """Declare flags for tables and figures, scale, seeds, data and results."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="tables and figures, or all")
    parser.add_argument("--scale", default="unequal", help=f"{SCALES} (default: unequal, for a CPU)")
    parser.add_argument(
        "--seeds", metavar="N", help="how many, from 1 on; or which: 1,4 (default: 5 at scale unequal, else 3)"
    )
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


def parse_request(given: dict[str, Any]) -> "Request":
    """Build a Request from the flags of `add_request`."""
    from dualtemp.grids.missing import parse_seeds
    from dualtemp.paper.claims import planned_looks
    from dualtemp.paper.reproduce import Request

    # As many seeds as the first look at the scale's claims needs: with fewer, no claim is decided.
    fewest = next(iter(planned_looks(given["scale"]).seeds), SEEDS)
    seeds = parse_seeds(given["seeds"] or str(fewest))
    return Request(given["ids"], given["scale"], seeds, given["data"], given["results"], given["validate"])


def write_reports(request: "Request", given: dict[str, Any], facts: "Mapping[str, DataFacts] | None") -> None:
    """Write the page and the summary, if asked for, and print their paths."""
    from dualtemp.paper.page import write_paper_page
    from dualtemp.paper.summary import write_paper_summary

    if given["report"] is not None:
        write_paper_page(request, given["report"], facts)
        print(given["report"])
    if given["summary"] is not None:
        write_paper_summary(request, given["summary"], facts)
        print(given["summary"])
