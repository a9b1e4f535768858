"""`dualtemp resume`: continue a run, or train a finished one for more epochs."""

import argparse
from typing import Any

from dualtemp.commands.arguments import add_run, add_training_options
from dualtemp.commands.command import Command, Group


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_run(parser)
    parser.add_argument("--epochs", type=int, metavar="N", help="train up to this epoch, even if the run is finished")
    add_training_options(parser)


def run(given: dict[str, Any]) -> int:
    """Resume."""
    from dualtemp import api

    api.resume(**given)
    return 0


COMMAND = Command(
    name="resume",
    about="Resume a run from its newest checkpoint: dualtemp resume runs/simco.",
    place=(Group.TRAIN, 2),
    add_arguments=add_arguments,
    run=run,
    takes_threads=False,
)
