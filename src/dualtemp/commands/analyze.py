"""`dualtemp analyze`: the paper's analyses of a run, printed as a table or JSON, or drawn as a figure."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.analysis.analyses import ANALYSES, check_asked
from dualtemp.atomic_write import refuse_input
from dualtemp.commands.arguments import add_device, add_json, add_run, check_ending
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = "\n".join(["analyses:", *(f"  {name:<12}{about}" for name, about in ANALYSES.items())])
    add_run(parser)
    parser.add_argument("what", metavar="ANALYSIS", help=", ".join(ANALYSES))
    parser.add_argument("--data", metavar="SET|FOLDER|FILE.npz", help="other images than the run's own")
    parser.add_argument("--taus", nargs="+", metavar="X", help="temperatures, also inf (not for neighbours)")
    parser.add_argument("--sizes", nargs="+", metavar="N", help="numbers of keys (not for neighbours)")
    parser.add_argument("--images", type=int, metavar="N", help="how many, for neighbours (default: 2000)")
    add_json(parser)
    parser.add_argument("--out", type=Path, metavar="FILE.svg|.json", help="write a figure, or the JSON, to a file")
    add_device(parser)


def run(given: dict[str, Any]) -> int:
    """Run the analysis, then print and write the result."""
    words = {name: _words(given[name]) for name in ("taus", "sizes")}
    taus: Any = words["taus"] and [_temperature(word) for word in words["taus"]]
    sizes: Any = words["sizes"] and [_size(word) for word in words["sizes"]]
    out = given["out"]
    check_asked(given["what"], taus, sizes, given["images"])  # before torch is loaded
    check_ending(out, ".svg", ".json")
    refuse_input(out, given["data"])
    from dualtemp.analysis.analyze import analyze

    others = {name: given[name] for name in ("data", "images", "device")}
    found = analyze(given["run"], given["what"], taus=taus, sizes=sizes and sorted(set(sizes)), **others)
    if out is not None:
        _write(out, found)
    if given["json"]:
        print_json(found, indent=2)
        return 0
    from dualtemp.report.analysis_table import print_analysis

    print_analysis(found)
    if out is not None:
        print(out)
    return 0


def _write(out: Path, found: dict[str, Any]) -> None:
    import json

    from dualtemp.atomic_write import write_output
    from dualtemp.report.analysis_figure import analysis_figure

    write_output(out, analysis_figure(found) if out.suffix.lower() == ".svg" else json.dumps(found, indent=2) + "\n")


def _words(given: list[str] | None) -> list[str] | None:
    """Split values at commas; argparse has split them at spaces."""
    return None if given is None else [word for part in given for word in part.split(",") if word] or [""]


def _temperature(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def _size(word: str) -> int | str:
    return int(word) if word.isascii() and word.isdigit() else word


COMMAND = Command(
    name="analyze",
    about="Look into a run: entropy, similarity, dictionary or neighbours.",
    place=(Group.INSPECT, 4),
    add_arguments=add_arguments,
    run=run,
)
