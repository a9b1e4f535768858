"""Find commands by listing the files of this folder, so that a new command is one new file."""

import os
from importlib import import_module

from dualtemp import commands
from dualtemp.commands.command import Command


def find_command(name: str) -> Command | None:
    """Import one command's file, and no other; None if there is no such command."""
    module = name.replace("-", "_")
    command = _load(module) if module in _modules() else None
    return command if command is not None and command.name == name else None


def all_commands() -> list[Command]:
    """Import every command, in the overview's order."""
    found = [command for module in _modules() if (command := _load(module)) is not None]
    return sorted(found, key=lambda command: (command.place, command.name))


def _modules() -> set[str]:
    names = (name for folder in commands.__path__ for name in os.listdir(folder))
    return {name.removesuffix(".py") for name in names if name.endswith(".py")} - {"__init__"}


def _load(module: str) -> Command | None:
    """The command that a module declares; None for modules that commands share."""
    return vars(import_module(f"{commands.__name__}.{module}")).get("COMMAND")
