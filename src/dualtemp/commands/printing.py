"""Printing that several commands share: tables, JSON, notes, and files that could not be read."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a plain table below a bold title; long cells are folded."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console(highlight=False)
    if title:
        console.print(f"[bold]{escape(title)}[/bold]", soft_wrap=True)
    console.print(table)


def print_json(value: Any, indent: int = 1) -> None:
    """Print a value as JSON, for --json."""
    import json

    print(json.dumps(value, indent=indent))


def print_note(text: str) -> None:
    """Print a note on standard error, apart from the results."""
    print(f"dualtemp: {text}", file=sys.stderr, flush=True)


def print_unreadable(unreadable: dict[str, str]) -> None:
    """Print the files that could not be read, name -> reason, if there are any."""
    if not unreadable:
        return
    from dualtemp.quantities import counted

    verb = "was" if len(unreadable) == 1 else "were"
    print(f"{counted(len(unreadable), 'file')} could not be read and {verb} left out:")
    for name, reason in unreadable.items():
        print(f"  {name}: {reason}")
