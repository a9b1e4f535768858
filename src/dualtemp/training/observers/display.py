"""Show a run on the terminal: a live progress line, plain lines if output is not a terminal, nothing if quiet."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dualtemp.config import Settings
from dualtemp.quantities import duration
from dualtemp.runs.metrics import measures

SILENCE = 60.0  # seconds without output before a line about work between steps is printed


class Display:
    """Shows a run on standard output. If that is gone, such as a closed pipe, the run continues unseen.

    Args:
        quiet: print nothing but notes, which go to standard error.
        live: redraw a progress line; default: if standard output is a terminal.
    """

    def __init__(self, quiet: bool = False, live: bool | None = None) -> None:
        self.epochs, self.quiet = 0, quiet
        self.live = sys.stdout.isatty() if live is None else live
        self.progress: Any = None
        self.task: Any = None
        self.begun: tuple[float, float] | None = None  # time and epochs at the first step seen
        self.now, self.said = 0.0, time.monotonic()  # in epochs; time of the last line

    def begin(self, path: Path, settings: Settings) -> None:
        """Store the number of epochs."""
        self.epochs, self.said = settings.epochs, time.monotonic()

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Update the live line."""
        if self.quiet or not self.live:
            return
        progress = self.progress or self._start()
        self.now = now = epoch + step / steps
        progress.update(self.task, completed=now, loss=f"loss {loss:.3f}", left=self._left(now))

    def working(self, what: str, done: int, total: int) -> None:
        """Show work between steps: on the live line, or without one, as a line after a minute of silence."""
        if self.quiet:
            return
        text = f"{what}, {done:,} of {total:,}"
        if self.live:
            line = self.progress or self._start()
            line.update(self.task, completed=self.now, loss=text, left="")
        elif time.monotonic() - self.said > SILENCE:
            self.said = time.monotonic()
            with suppress(OSError):
                print(text, flush=True)

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Print a line; on a terminal, with as many measures as fit."""
        if self.quiet:
            return
        self.said = time.monotonic()
        head, left = f"epoch {metrics['epoch']:>{len(str(self.epochs))}}/{self.epochs}", self._left(metrics["epoch"])
        try:
            if self.progress is not None:
                console = self.progress.console
                line = f"{head}  {summary(metrics, console.width - len(head) - 2)}"
                console.print(line, highlight=False, markup=False)
            else:
                print("  ".join((head, summary(metrics), *([left] if left else []))), flush=True)
        except OSError:
            self.quiet = True

    def note(self, text: str) -> None:
        """Print a note on standard error."""
        with suppress(OSError):
            print(f"dualtemp: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def _start(self) -> Any:
        from rich.progress import Progress, TextColumn

        from dualtemp.progress_bar import PlainBar

        self.progress = Progress(
            TextColumn("epoch {task.completed:.2f}/{task.total:.0f}"),
            PlainBar(),
            TextColumn("{task.fields[loss]}  {task.fields[left]}"),
            transient=True,
        )
        self.task = self.progress.add_task("train", total=self.epochs, loss="", left="")
        self.progress.start()
        return self.progress

    def _left(self, now: float) -> str:
        if self.begun is None:
            self.begun = (time.monotonic(), now)
            return ""
        elapsed, made = time.monotonic() - self.begun[0], now - self.begun[1]
        return f"{duration(elapsed / made * (self.epochs - now))} left" if made > 0 and now < self.epochs else ""


def summary(metrics: dict[str, Any], width: int | None = None) -> str:
    """An epoch's measures in one line; if it is wider than `width`, the least important are left out."""
    shown = [each for each in measures().values() if each.key in metrics]
    figures = sorted(
        (each.terminal.rank, each.terminal.form.format(metrics[each.key])) for each in shown if each.terminal
    )
    alarms = [each.alarm for each in shown if each.alarm and metrics[each.key]]
    while width is not None and figures[-1][0] > 1 and len("  ".join((*_texts(figures), *alarms))) > width:
        figures.pop()
    return "  ".join((*_texts(figures), *alarms))


def _texts(figures: list[tuple[int, str]]) -> list[str]:
    return [text for _, text in figures]
