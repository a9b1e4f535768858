"""Find the runs of a grid that have no result yet, and parse seeds. Needs no torch unless images are opened."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from dualtemp.errors import UserError
from dualtemp.grids.known_data import is_local
from dualtemp.grids.plan import Plan
from dualtemp.grids.results import NAME, DataFacts, Job, Results, read_data_facts
from dualtemp.grids.same_weights import refuse_other_weights
from dualtemp.grids.tables import make_jobs
from dualtemp.quantities import counted

MOST_SEEDS = 10_000
PILOT = 0  # the seed for choosing settings; claims do not use it


class Asked(Protocol):
    """A user's request, as far as needed here: seeds, and the results folder."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every cell."""
        ...

    @property
    def results(self) -> Path:
        """The results folder."""
        ...


@dataclass(frozen=True)
class Missing:
    """Runs still to be executed, of how many; facts of the data that could be opened, and why other data could not.

    failed: how many have failed before and are not to be made again.
    """

    jobs: list[Job]
    wanted: int
    facts: dict[str, DataFacts]
    unavailable: dict[str, str] = field(default_factory=dict)
    failed: int = 0

    def describe_no_jobs(self) -> str:
        """Say in one line why no run is left."""
        if not self.failed:
            return "nothing is missing"
        return f"nothing is missing, but {counted(self.failed, 'run')} failed before: --retry makes failed runs again"


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse seeds: "3" means 1, 2, 3; "4,7" means these two. Seed 0 is the pilot's."""
    try:
        seeds = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0 or ("," not in text and seeds[0] < 1):
        raise UserError(f"--seeds {text!r}: give how many (3), or which (1,2,5; one alone: 4,)")
    if "," not in text and seeds[0] > MOST_SEEDS:
        raise UserError(f"--seeds {text}: give at most {MOST_SEEDS:,}; the one seed {text} is --seeds {text},")
    return tuple(dict.fromkeys(seeds)) if "," in text else tuple(range(PILOT + 1, PILOT + 1 + seeds[0]))


def find_missing(
    request: Asked, found: Plan, cell: str | None = None, retry: bool = False, fetch: bool = True
) -> Missing:
    """Open the data and find the runs that have no result yet. Raises UserError if results are of other weights.

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
            jobs = [job for job in _distinct(make_jobs(found, request.seeds, facts).values()) if job.name == cell]
            if jobs:
                break
    if words and not facts:
        raise UserError(next(iter(unavailable.values())))
    if cell is None:
        jobs = _distinct(make_jobs(found, request.seeds, facts).values())
    elif not jobs:
        raise _no_such_cell(cell, [run.settings["data"] for run in found.runs.values()], words)
    results = Results(request.results)
    read = {job.name: results.read(job) for job in jobs}
    refuse_other_weights(jobs, read)

    def wanted(job: Job) -> bool:
        there = read[job.name]
        return there is None or (retry and there["status"] == "failed")

    left = [job for job in jobs if wanted(job)]
    failed = 0 if retry else sum(there is not None and there["status"] == "failed" for there in read.values())
    return Missing(left, len(jobs), facts, unavailable, failed)


def _distinct(jobs: Iterable[Job]) -> list[Job]:
    """Return each run once, with the measurements of all planned runs that are the same run on this data."""
    found: dict[str, Job] = {}
    for job in jobs:
        before = found.get(job.name)
        measured = job.measured if before is None else tuple(dict.fromkeys((*before.measured, *job.measured)))
        found[job.name] = replace(job, measured=measured)
    return list(found.values())


def _where_a_cell_can_be(cell: str, request: Asked, words: list[str], fetch: bool) -> list[str]:
    """Return the sets in which to look for a cell: local ones before those that must be downloaded."""
    name = NAME.fullmatch(cell)
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
