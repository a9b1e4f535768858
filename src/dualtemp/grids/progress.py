"""Progress of many runs: a live bar with the time left on a terminal, a line per run elsewhere."""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from dualtemp.grids.cost import count_passes
from dualtemp.grids.results import Job, data_name
from dualtemp.quantities import duration


class RunsDisplay:
    """Shows the progress of runs.

    Args:
        jobs: all runs.
        live: redraw one line; default: only if standard output is a terminal.
        begun: names of runs that began before; what they had done by then says nothing about the speed now.
    """

    def __init__(self, jobs: Sequence[Job], live: bool | None = None, begun: Iterable[str] = ()) -> None:
        self.live = sys.stdout.isatty() if live is None else live
        self.costs = {job.name: count_passes(job.settings, job.facts.images) for job in jobs}
        self.made, self.whole = dict.fromkeys(self.costs, 0.0), sum(self.costs.values()) or 1.0
        self.begun, self.done_before = set(begun), 0.0
        self.over, self.began = 0, time.monotonic()
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> "RunsDisplay":
        """Show the bar."""
        if self.live:
            from rich.progress import Progress, TextColumn

            from dualtemp.progress_bar import PlainBar

            columns = (TextColumn("{task.fields[runs]} runs"), PlainBar(), TextColumn("{task.fields[left]}"))
            self.bar = Progress(*columns, transient=True)
            self.task = self.bar.add_task("runs", total=1.0, runs=f"0/{len(self.costs)}", left="")
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self.bar is not None:
            self.bar.stop()

    def moved(self, job: Job, fraction: float) -> None:
        """Update how far a run is, from 0 to 1."""
        self.made[job.name] = fraction
        if job.name in self.begun:  # its first report
            self.begun.remove(job.name)
            self.done_before += self.costs[job.name] * fraction
        if self.bar is not None:
            runs = f"{self.over}/{len(self.costs)}"
            self.bar.update(self.task, completed=self.fraction, runs=runs, left=self.left)

    def ended(self, job: Job, status: str, reason: str) -> None:
        """Print a line about a run that is over."""
        self.over += 1
        self.moved(job, 1.0)
        line = f"{self.over}/{len(self.costs)}  {job.name}  {status}  {describe_job(job)}"
        line += f"  ({reason})" if reason else ""
        if self.bar is not None:
            self.bar.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            print(f"{line}  {self.left}".rstrip(), flush=True)

    @property
    def fraction(self) -> float:
        """Share of all the work that is done, from 0 to 1, counted in encoder passes."""
        return sum(cost * self.made[name] for name, cost in self.costs.items()) / self.whole

    @property
    def left(self) -> str:
        """The time left, in words."""
        fraction, elapsed = self.fraction, time.monotonic() - self.began
        done_now = fraction - self.done_before / self.whole
        return f"{duration(elapsed * (1 - fraction) / done_now)} left" if done_now > 1e-9 and fraction < 1 else ""


def describe_job(job: Job) -> str:
    """Describe a run in a few words: framework, temperatures and whatever else sets it apart."""
    chosen = job.settings
    words = [chosen.method, data_name(chosen.data)]
    for name in ("tau_alpha", "tau_beta", "keys", "vector_size", "vector_sampling", "scalar_size", "scalar_sampling"):
        value = chosen.get(name)
        if value is not None and value not in ("dictionary", "newest", "tied"):
            words.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    words += [name for name in ("symmetric", "hardness_aware") if chosen.get(name)]
    if chosen.get("label_noise"):
        words.append(f"{chosen.get('noise')} noise {chosen.get('label_noise'):g}")
    return " ".join([*words, f"epochs {chosen.epochs}", f"batch {chosen.batch}", f"seed {chosen.seed}"])
