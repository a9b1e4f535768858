"""What a run shows on the terminal: a live line where there is one, plain lines elsewhere, nothing if quiet."""

import sys
import time
from typing import Any


class Display:
    """Tells of a run on standard output.

    Args:
        epochs: of the whole run.
        quiet: say nothing but notes, which go to standard error.
        live: a progress line that is redrawn; default: if standard output is a terminal.
    """

    def __init__(self, epochs: int, quiet: bool = False, live: bool | None = None) -> None:
        self.epochs, self.quiet = epochs, quiet
        self.live = sys.stdout.isatty() if live is None else live
        self.progress: Any = None
        self.task: Any = None
        self.begun: tuple[float, float] | None = None  # time and epochs at the first step seen

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Move the live line."""
        if self.quiet or not self.live:
            return
        progress = self.progress or self._start()
        now = epoch + step / steps
        progress.update(self.task, completed=now, loss=f"loss {loss:.3f}", left=self._left(now))

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Print a line."""
        if self.quiet:
            return
        now = float(metrics["epoch"])
        line = f"epoch {metrics['epoch']:>{len(str(self.epochs))}}/{self.epochs}  {summary(metrics)}"
        left = self._left(now)
        if self.progress is not None:
            self.progress.console.print(line, highlight=False)
            return
        print(f"{line}  {left}" if left else line, flush=True)

    def note(self, text: str) -> None:
        """Print a note on standard error."""
        print(f"dualtemp: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def _start(self) -> Any:
        from rich.progress import BarColumn, Progress, TextColumn

        self.progress = Progress(
            TextColumn("epoch {task.completed:.2f}/{task.total:.0f}"),
            BarColumn(),
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


def summary(metrics: dict[str, Any]) -> str:
    """One line of an epoch's figures."""
    parts = [f"loss {metrics['loss']:.3f}"]
    if "probe_top1" in metrics:
        parts.append(f"probe {metrics['probe_top1']:.2f} %")
        parts.append(f"kNN {metrics['knn_top1']:.2f} %")
    if "spread" in metrics:
        parts.append(f"spread {metrics['spread']:.2f}")
    if "entropy" in metrics:
        parts.append(f"entropy of r_+ {metrics['entropy']:.3f}")
    if metrics.get("collapsed"):
        parts.append("COLLAPSED: all images have nearly the same features")
    return "  ".join(parts)


def duration(seconds: float) -> str:
    """3 s, 2 min, 1 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
