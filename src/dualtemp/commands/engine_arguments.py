"""Flags for where independent runs are computed."""

import argparse
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import Flags, add_device, check_at_least
from dualtemp.errors import UserError
from dualtemp.machine import check_threads

if TYPE_CHECKING:
    from dualtemp.engines.choice import EngineOptions


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Declare --on, --jobs, --threads, --slurm and --device."""
    group = parser.add_argument_group("where it runs")
    add_engine_choice(group, "runs", "local processes, Slurm or Ray (default: local)", "local")
    text = "of the CPU, for a run (default: cores / jobs; clusters: 1)"
    group.add_argument("--threads", type=int, metavar="N", help=text)
    add_device(group)


def add_engine_choice(group: Flags, what: str, about: str, default: str | None) -> None:
    """Declare --on, --jobs and --slurm; what: the plural noun for the independent pieces; about: the help of --on."""
    from dualtemp.engines.choice import ENGINES

    group.add_argument("--on", choices=ENGINES, default=default, help=about)
    text = f"{what} at a time (default: GPUs, or cores; clusters: all)"
    group.add_argument("--jobs", type=int, metavar="N", help=text)
    text = "for sbatch, such as partition=gpu or time=240; repeatable"
    group.add_argument("--slurm", action="append", default=[], metavar="KEY=VALUE", help=text)


def add_missing_runs(parser: argparse.ArgumentParser) -> None:
    """Declare the flags that choose among the missing runs, and --keep-runs."""
    parser.add_argument("--list", action="store_true", help="print a command per missing run, and run nothing")
    parser.add_argument("--cell", metavar="KEY", help="only this run, as --list names it")
    parser.add_argument("--retry", action="store_true", help="make failed runs again")
    parser.add_argument("--keep-runs", action="store_true", help="keep run folders in RESULTS/runs")


def engine_options(given: dict[str, Any]) -> "EngineOptions":
    """Return what the flags of `add_engine` say."""
    from dualtemp.engines.choice import EngineOptions

    check_at_least(given, jobs=1)
    check_threads(given["threads"])
    if given["slurm"] and given["on"] != "slurm":
        raise UserError(f"--slurm {given['slurm'][0]} is for --on slurm alone: add --on slurm, or leave it out")
    return EngineOptions(given["on"], given["jobs"], given["threads"], given["device"], tuple(given["slurm"]))
