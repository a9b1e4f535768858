"""Flags that say where independent runs are carried out."""

import argparse
from typing import TYPE_CHECKING, Any

from dualtemp.commands.arguments import add_device, check_at_least

if TYPE_CHECKING:
    from dualtemp.engines.choice import EngineOptions


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Declare --on, --jobs, --threads and --device."""
    group = parser.add_argument_group("where it runs")
    group.add_argument("--jobs", type=int, metavar="N", help="runs at a time (default: GPUs, or cores)")
    group.add_argument("--threads", type=int, metavar="N", help="of the CPU, for a run (default: cores / jobs)")
    add_device(group)


def engine_options(given: dict[str, Any]) -> "EngineOptions":
    """Return what the flags of `add_engine` say."""
    from dualtemp.engines.choice import EngineOptions

    check_at_least(given, jobs=1, threads=1)
    return EngineOptions("local", given["jobs"], given["threads"], given["device"])
