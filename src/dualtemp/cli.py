"""The command line: find a command, parse its flags, and turn what goes wrong into one line and an exit code.

Commands are the files of `dualtemp.commands`. Each loads what it needs when it runs: `--help` never imports torch.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NoReturn

from dualtemp import __version__
from dualtemp.commands.arguments import add_threads
from dualtemp.commands.command import Command
from dualtemp.commands.lookup import all_commands, find_command
from dualtemp.errors import UserError
from dualtemp.machine import use_threads
from dualtemp.standard_streams import standard_streams
from dualtemp.text import did_you_mean, similar_words, suggest

ABOUT = "Contrastive learning with two temperatures, without many negative samples."


class Parser(argparse.ArgumentParser):
    """The argument parser of one command. Its errors are one line, with the nearest valid flag."""

    def __init__(self, command: Command) -> None:
        super().__init__(
            f"dualtemp {command.name}",
            description="\n\n".join(filter(None, (command.about, command.details))),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(self)
        if command.takes_threads:
            add_threads(self)

    def error(self, message: str) -> NoReturn:
        """Raise a UserError instead of printing the usage and exiting."""
        raise UserError(f"{message}; see {self.prog} --help")

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the values of all flags; an unknown one is an error."""
        known, unknown = self.parse_known_args(words)
        if unknown:
            raise UserError(self._unknown(unknown[0]))
        return vars(known)

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is not expected here; see {self.prog} --help"
        flag = word.partition("=")[0]
        near = similar_words(flag, self._option_string_actions)
        hint = f": {did_you_mean(near)}" if near else f"; see {self.prog} --help"
        return f"no setting is called {flag}{hint}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the command's exit code, or 2 for a user's mistake, 130 when interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with standard_streams() as streams:
        try:
            code = _run(words)
            sys.stdout.flush()
        except UserError as error:
            code = _refuse(str(error))
        except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
            streams.out.discard()
            code = 0
        except OSError as error:  # a file with an impossible name or without permission, a disk full or broken
            where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
            code = _refuse(f"{where}{error.strerror or error}")
        except KeyboardInterrupt as error:
            print(f"dualtemp: {str(error) or 'interrupted'}", file=sys.stderr)
            code = 130
        except SystemExit as error:  # --help exits with 0; only a plugin exits with a message
            code = error.code if isinstance(error.code, int) else _refuse(str(error.code)) if error.code else 0
        if code == 0 and streams.out.trouble is not None:
            code = _refuse(f"standard output could not be written ({streams.out.trouble.strerror}): make room")
    return code


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        print(__version__)
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    command = find_command(words[0])
    if command is None:
        raise _unknown_command(words[0])
    rest = _load_plugins(words[1:])  # first: they may declare settings, which are flags
    given = Parser(command).parse(rest)
    if command.takes_threads:
        use_threads(given.pop("threads"))
    return command.run(given)


def _refuse(why: str) -> int:
    if os.environ.get("RANK", "0") == "0":  # of several processes, only rank 0 prints
        print(f"dualtemp: {' '.join(why.split())}", file=sys.stderr)
    return 2


def _unknown_command(word: str) -> UserError:
    names = [command.name for command in all_commands()]
    hint = suggest(word, names, otherwise="")
    return UserError(f"no command '{word}': {hint} Commands: {', '.join(names)}; see dualtemp --help")


def _load_plugins(words: list[str]) -> list[str]:
    """Load the files of `--plugin FILE.py`, which any command takes; returns the other words."""
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        flag, given, value = word.partition("=")
        if flag != "--plugin":
            rest.append(word)
            continue
        from dualtemp.frameworks.registry import add_plugin

        value = value if given else next(waiting, "")
        if not value:
            raise UserError("--plugin needs a Python file that declares frameworks: --plugin my_framework.py")
        add_plugin(value)
    return rest


def _overview() -> str:
    groups = groupby(all_commands(), key=lambda command: command.place[0])
    listed = ["\n".join(f"  {command.name:<16} {command.about}" for command in group) for _, group in groups]
    return "\n\n".join(
        [
            f"usage: dualtemp COMMAND ...\n\n{ABOUT}",
            *listed,
            "`dualtemp COMMAND --help` lists its settings. Every command takes --plugin FILE.py, your own parts.",
        ]
    )
