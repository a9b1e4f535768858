"""`dualtemp explore`: a page on which the temperatures of a run can be moved."""

import argparse
from pathlib import Path
from typing import Any

from dualtemp.commands.arguments import add_device, add_encoder, check_ending, default_out
from dualtemp.commands.command import Command, Group


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_encoder(parser)
    parser.add_argument(
        "--data", metavar="SET | FOLDER | FILE.npz", help="images to look at (default: the run's training images)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.html", help="where the page goes (default: RUN/explore.html)")
    add_device(parser)


def run(given: dict[str, Any]) -> int:
    """Write the page and print its path."""
    from dualtemp.analysis.frozen_start import frozen_start
    from dualtemp.analysis.trained_run import open_trained_run
    from dualtemp.device import open_device
    from dualtemp.encoder.encoder import names_start
    from dualtemp.report.explorer import write_explorer

    check_ending(given["out"], ".html", ".htm")
    open_run = frozen_start if names_start(given["run"]) else open_trained_run
    opened = open_run(given["run"], open_device(given["device"]), given["data"])
    print(write_explorer(opened, given["out"] or default_out(given["run"], "explore.html")))
    return 0


COMMAND = Command(
    name="explore",
    about="Write a page with sliders for tau_alpha, tau_beta and the dictionary.",
    place=(Group.INSPECT, 3),
    add_arguments=add_arguments,
    run=run,
)
