"""The command line. Each command is a few lines that load their room when they run: `--help` never imports torch."""

import difflib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from dualtemp import __version__
from dualtemp.errors import UserError

ABOUT = "Contrastive learning with two temperatures, without many negative samples."


def data(
    source: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="[SET | FOLDER | FILE.npz]", help_behavior_hint="")
    ] = "",
    /,
    show: bool = False,
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE.png", help_behavior_hint="")] = None,
    recipe: Annotated[str, tyro.conf.arg(metavar="NAME")] = "paper",
    no_labels: bool = False,
    json: bool = False,
) -> int:
    """List the sets and what is cached; check one source; or show what the network will see of it.

    Args:
        source: What to check: a set, a folder of images, or an .npz file. Without it, the sets are listed.
        show: Write a contact sheet of some images and their two views.
        out: Where the contact sheet goes; by default NAME-views.png, here.
        recipe: The augmentation of the views: paper, mocov2, simclr or byol.
        no_labels: Leave labels and class folders aside.
        json: Print JSON.
    """
    from dualtemp.data import command

    if not source:
        if show:
            raise UserError("--show needs a set, a folder or a file: dualtemp data cifar10 --show")
        command.list_sets(json)
        return 0
    if show:
        command.show(source, out, recipe, labels=not no_labels)
        return 0
    return command.print_check(source, json, labels=not no_labels)


COMMANDS: dict[str, Callable[..., Any]] = {"data": data}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 2 for a user's mistake, 130 when interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):  # file names need not be valid text
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        if words == ["--version"]:
            print(__version__)
            return 0
        _check_command(words)
        code = tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="dualtemp",
            description=ABOUT,
            args=words or ["--help"],
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
        )
        sys.stdout.flush()
    except UserError as error:
        print(f"dualtemp: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it ends
        return 0
    except KeyboardInterrupt:
        print("dualtemp: interrupted", file=sys.stderr)
        return 130
    return code or 0


def _check_command(words: list[str]) -> None:
    if not words or words[0].startswith("-") or words[0] in COMMANDS:
        return
    near = difflib.get_close_matches(words[0], COMMANDS, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise UserError(f"no command '{words[0]}': {hint}Commands: {', '.join(COMMANDS)}; see dualtemp --help")
