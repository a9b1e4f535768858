"""Flags that say where independent runs are carried out."""

import argparse
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import add_device, check_at_least
from dualtemp.errors import UserError

if TYPE_CHECKING:
    from dualtemp.engines.choice import EngineOptions

ENGINES = ("local", "slurm", "ray")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Declare --on, --jobs, --threads and --device."""
    group = parser.add_argument_group("where it runs")
    group.add_argument("--on", choices=ENGINES, default="local", help="local processes, Slurm or Ray (default: local)")
    group.add_argument("--jobs", type=int, metavar="N", help="runs at a time (default: GPUs, or cores; clusters: all)")
    text = "of the CPU, for a run (default: cores / jobs; clusters: 1)"
    group.add_argument("--threads", type=int, metavar="N", help=text)
    text = "for sbatch, such as partition=gpu or time=240; repeatable"
    group.add_argument("--slurm", action="append", default=[], metavar="KEY=VALUE", help=text)
    add_device(group)


def engine_options(given: dict[str, Any]) -> "EngineOptions":
    """Return what the flags of `add_engine` say."""
    from dualtemp.engines.choice import EngineOptions

    check_at_least(given, jobs=1, threads=1)
    if given["slurm"] and given["on"] != "slurm":
        raise UserError(f"--slurm {given['slurm'][0]} is for --on slurm alone: add --on slurm, or leave it out")
    return EngineOptions(given["on"], given["jobs"], given["threads"], given["device"], tuple(given["slurm"]))
