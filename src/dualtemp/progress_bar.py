"""Progress of a long computation: a bar that needs no color on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from dualtemp.quantities import duration

CELLS = 30
LINE_SECONDS = 30.0  # between two lines where there is no terminal


class PlainBar(ProgressColumn):
    """[######------]: what is done and what is left are different characters, not only different colors."""

    def render(self, task: Task) -> Text:
        """Draw the bar, CELLS wide; empty while the total is unknown."""
        share = min(1.0, max(0.0, task.completed / task.total)) if task.total else 0.0
        done = int(share * CELLS)
        return Text("[") + Text("#" * done, "bar.complete") + Text("-" * (CELLS - done), "bar.back") + Text("]")


@contextmanager
def image_progress(quiet: bool = False, what: str = "images") -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function (done, total) that shows progress on standard error; None if quiet. what: the things counted."""
    if quiet:
        yield None
    elif sys.stderr is not None and sys.stderr.isatty():
        columns = (
            TextColumn(f"{{task.completed:,.0f}} of {{task.total:,.0f}} {what}"),
            PlainBar(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=None, visible=False)

            def show(done: int, total: int) -> None:
                if done < progress.tasks[0].completed or total != progress.tasks[0].total:  # a new set of images
                    progress.reset(task, total=total)
                progress.update(task, completed=done, total=total, visible=True)

            yield show
    else:
        yield _Lines(what)


@contextmanager
def status_line(text: str, quiet: bool = False) -> Iterator[None]:
    """Show a text with a spinner while the block runs; only on a terminal."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True, highlight=False).status(escape(text)):
        yield


class _Lines:
    """Prints a line every LINE_SECONDS, for logs."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.said = self.began = time.monotonic()
        self.first = self.last = self.total = 0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < self.last or total != self.total:  # a new set of images
            self.began, self.first, self.total = now, done, total
        self.last = done
        if now - self.said >= LINE_SECONDS and done < total:
            self.said = now
            made = done - self.first
            left = f", about {duration((now - self.began) / made * (total - done))} left" if made else ""
            print(f"dualtemp: {done:,} of {total:,} {self.what}{left}", file=sys.stderr, flush=True)
