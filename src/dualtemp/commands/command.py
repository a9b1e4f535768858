"""The type of a command: every file of this folder that defines `COMMAND = Command(...)` is one."""

import argparse
from collections.abc import Callable
from enum import IntEnum, auto
from typing import Any, NamedTuple


class Group(IntEnum):
    """The parts of the overview, in their order."""

    TRAIN = auto()
    INSPECT = auto()
    USE = auto()
    PAPER = auto()
    START = auto()


class Command(NamedTuple):
    """A command of the command line.

    The overview imports every command's module, so heavy imports belong inside functions.

    Args:
        name: as typed; also the file's name, with `_` for `-`.
        about: one line, for the overview.
        run: runs the command, given the values of its flags; returns the exit code.
        add_arguments: declares its flags.
        place: in the overview: a group, and a position in it.
        details: more lines for its own --help.
        takes_threads: whether to add `--threads`, and apply it before `run`. False for commands that compute nothing
            or declare the flag themselves.
    """

    name: str
    about: str
    run: Callable[[dict[str, Any]], int]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    place: tuple[Group, int]
    details: str = ""
    takes_threads: bool = True
