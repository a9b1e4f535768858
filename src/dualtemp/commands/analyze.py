"""`dualtemp analyze`: measure what the paper looks at in a run; print a table or JSON, or draw a figure."""

import argparse
import math
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import add_device, add_json, add_run
from dualtemp.commands.command import Command, Group
from dualtemp.commands.printing import print_json
from dualtemp.errors import UserError
from dualtemp.text import suggest

ANALYSES = {
    "entropy": "entropy of r_+ by number of keys and temperature (fig:entropy)",
    "similarity": "similarity of r_+ when all keys are drawn anew (fig:abg_similarity)",
    "dictionary": "what the scalar and the vector each lose with fewer keys",
    "neighbours": "which images lie near each other, and whether their labels agree",
}
ENDINGS = (".svg", ".json")


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
    parser.add_argument("--out", type=Path, metavar="FILE.svg|.json", help="write a figure, or what --json prints")
    add_device(parser)


def run(given: dict[str, Any]) -> int:
    """Measure, print, write."""
    _check(given)
    taus = None if given["taus"] is None else [_temperature(word) for word in _words(given["taus"])]
    sizes = None if given["sizes"] is None else sorted({_size(word) for word in _words(given["sizes"])})
    from dualtemp.analysis.analyze import analyze

    others = {name: given[name] for name in ("data", "images", "device")}
    found = analyze(given["run"], given["what"], taus=taus, sizes=sizes, **others)
    out = given["out"]
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

    write_output(out, analysis_figure(found) if out.suffix == ".svg" else json.dumps(found, indent=2) + "\n")


def _check(given: dict[str, Any]) -> None:
    """Refuse flags that do not go together, before torch is loaded."""
    what, out = given["what"], given["out"]
    if what not in ANALYSES:
        raise UserError(f"no analysis is called {what!r}: {suggest(what, ANALYSES)}")
    foreign = ("taus", "sizes") if what == "neighbours" else ("images",)
    for name in foreign:
        if given[name] is not None:
            raise UserError(f"--{name} does not apply to {what}: leave it out")
    if given["images"] is not None and given["images"] < 2:
        raise UserError(f"--images must be at least 2, got {given['images']}")
    if out is not None and (out.suffix not in ENDINGS or out.is_dir()):
        raise UserError(f"--out {out}: a file that ends in {' or '.join(ENDINGS)} is expected")


def _words(given: list[str]) -> list[str]:
    """Split values at commas; argparse has split them at spaces."""
    return [word for part in given for word in part.split(",") if word] or [""]


def _temperature(word: str) -> float:
    try:
        tau = float(word)
    except ValueError:
        tau = math.nan
    if not tau > 0:
        raise UserError(f"--taus: a number > 0, or inf, is expected, got {word!r}")
    return tau


def _size(word: str) -> int:
    if not word.isascii() or not word.isdigit() or int(word) < 1:
        raise UserError(f"--sizes: whole numbers from 1 on are expected, got {word!r}")
    return int(word)


COMMAND = Command(
    name="analyze",
    about="Look into a run: entropy, similarity, dictionary or neighbours.",
    place=(Group.INSPECT, 4),
    add_arguments=add_arguments,
    run=run,
)
