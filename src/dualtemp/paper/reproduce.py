"""Execute the runs that the selected tables and figures still lack."""

import re
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError
from dualtemp.machine import cores
from dualtemp.paper.artifact import select_artifacts
from dualtemp.paper.engine import Engine
from dualtemp.paper.known_data import is_local
from dualtemp.paper.plan import Plan, plan
from dualtemp.paper.pool import ProcessPool
from dualtemp.paper.progress import RunsDisplay
from dualtemp.paper.results import DataFacts, Job, Results, read_data_facts
from dualtemp.paper.scale import DataChoice, load_scale
from dualtemp.paper.tables import make_jobs

PILOT = 0  # the seed for choosing settings; claims do not use it


@dataclass(frozen=True)
class Request:
    """A user's request, in the words of the command line."""

    ids: Sequence[str]
    scale: str = "mini"
    seeds: tuple[int, ...] = (1, 2, 3)
    data: Sequence[str] = ()
    results: Path = Path("results")
    validate: str = "test"

    def make_plan(self) -> Plan:
        """Plan the requested cells and runs."""
        scale = load_scale(self.scale)
        if self.validate != "test":
            scale = scale.with_settings({"validate": self.validate})
        return plan(select_artifacts(self.ids), scale, DataChoice.parse(list(self.data)))

    def command(self, job: Job) -> str:
        """Return the command that executes this run alone."""
        words = ["dualtemp", "reproduce", *self.ids, "--scale", self.scale, "--seeds", f"{job.settings.seed},"]
        words += [word for data in self.data for word in ("--data", data)]
        return shlex.join(
            [*words, *self.validate_flags(), "--results", str(self.results), "--jobs", "1", "--cell", job.name]
        )

    def validate_flags(self) -> list[str]:
        """Return the flags that choose the images to measure on."""
        return [] if self.validate == "test" else ["--validate", self.validate]


@dataclass(frozen=True)
class Missing:
    """Runs still to be executed; facts of the data that is here, and why other data is not."""

    jobs: list[Job]
    facts: dict[str, DataFacts]
    unavailable: dict[str, str] = field(default_factory=dict)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse seeds: "3" means 1, 2, 3; "4,7" means these two. Seed 0 is the pilot's."""
    try:
        seeds = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0 or ("," not in text and seeds[0] < 1):
        raise UserError(f"--seeds {text!r}: give how many (3), or which (1,2,5; one alone: 4,)")
    return tuple(dict.fromkeys(seeds)) if "," in text else tuple(range(PILOT + 1, PILOT + 1 + seeds[0]))


def find_missing(
    request: Request, found: Plan, cell: str | None = None, retry: bool = False, fetch: bool = True
) -> Missing:
    """Open the data and find the runs that have no result yet.

    cell: look for this run only; retry: include failed runs; fetch: whether sets may be downloaded to find the cell.
    """
    words = list(dict.fromkeys(run.settings["data"] for run in found.runs.values()))
    if cell is not None:
        words = _where_a_cell_can_be(cell, request, words, fetch)
    facts: dict[str, DataFacts] = {}
    unavailable: dict[str, str] = {}
    jobs: list[Job] = []
    for word in words:
        try:
            facts[word] = read_data_facts(word)
        except UserError as error:
            unavailable[word] = str(error)
        if cell is not None:
            jobs = [job for job in make_jobs(found, request.seeds, facts).values() if job.name == cell]
            if jobs:
                break
    if words and not facts:
        raise UserError(next(iter(unavailable.values())))
    if cell is None:
        jobs = list(make_jobs(found, request.seeds, facts).values())
    elif not jobs:
        raise _no_such_cell(cell, [run.settings["data"] for run in found.runs.values()], words)
    results = Results(request.results)
    read = {job.name: results.read(job) for job in jobs}

    def wanted(job: Job) -> bool:
        there = read[job.name]
        return there is None or (retry and there["status"] == "failed")

    left = [job for job in jobs if wanted(job)]
    return Missing(left, facts, unavailable)


def _where_a_cell_can_be(cell: str, request: Request, words: list[str], fetch: bool) -> list[str]:
    """Return the sets in which to look for a cell: local ones before those that must be downloaded."""
    name = re.fullmatch(r"[0-9a-f]{16}-s(\d+)", cell)
    if name is None or int(name[1]) not in request.seeds:
        raise _no_such_cell(cell)
    here = [word for word in words if is_local(word)]
    return here + [word for word in words if fetch and word not in here]


def _no_such_cell(cell: str, words: Sequence[str] = (), looked_in: Sequence[str] = ()) -> UserError:
    left = [word for word in dict.fromkeys(words) if word not in looked_in]
    beside = f"; not searched, because they are not downloaded: {', '.join(left)}" if left else ""
    return UserError(
        f"there is no cell {cell!r} here: use the data, scale, seeds and ids of the --list command{beside}"
    )


def run_missing(
    request: Request,
    left: Missing,
    jobs: int | None,
    device: str = "auto",
    keep: bool = False,
    threads: int | None = None,
) -> int:
    """Execute the runs and return how many failed. If interrupted, the same command continues."""
    results = Results(request.results)
    results.make_folders()
    for job in left.jobs:  # only failed runs that are to be retried have a result
        (results.path / f"{job.name}.json").unlink(missing_ok=True)
    engine = _local_engine(jobs, device, keep, threads)
    with _terminable(), RunsDisplay(left.jobs) as display:
        try:
            outcome = engine.run(left.jobs, request.results, display)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; the same command continues") from None
    return outcome["failed"]


def _local_engine(jobs: int | None, device: str, keep: bool, threads: int | None) -> Engine:
    import torch

    devices = [device]
    if device in ("auto", "cuda") and torch.cuda.is_available():
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        jobs = jobs or len(devices)
    jobs = jobs or (cores() if devices == ["cpu"] or not torch.backends.mps.is_available() else 1)
    return ProcessPool([devices[i % len(devices)] for i in range(jobs)], threads or max(1, cores() // jobs), keep)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM stop the runs as Ctrl-C does."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
