"""What goes on while nothing is printed yet: a line on a terminal that goes away, nothing elsewhere. Needs no torch."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def told(text: str, quiet: bool = False) -> Iterator[None]:
    """Show the text on standard error, with something that moves, until this is over."""
    if quiet or not _on_terminal():
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True, highlight=False).status(escape(text)):
        yield


def counted_up(items: Iterable[T], total: int, text: str) -> Iterator[T]:
    """The items, with a bar of how many of them are done on standard error."""
    if not _on_terminal():
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, highlight=False), transient=True) as progress:
        task = progress.add_task(text, total=total)
        for item in items:
            yield item
            progress.advance(task)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
