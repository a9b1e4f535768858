"""The list of tables and figures: runs, how many are done, and how long the rest would take."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dualtemp.grids.cost import expected_seconds
from dualtemp.grids.known_data import known_facts
from dualtemp.grids.results import Results
from dualtemp.grids.tables import make_jobs
from dualtemp.machine import cores
from dualtemp.paper.plan import PaperPlan
from dualtemp.paper.reproduce import Request
from dualtemp.quantities import duration

TWO_DAYS = 2 * 86400


def print_listing(request: Request, times: bool = True) -> None:
    """Print id, title, claims, runs, how many are done, and the expected time of the missing ones on this machine."""
    found = request.make_plan()
    done = done_runs(request, found)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("id", "title", "claims", "runs", "done", *(["time left"] if times else [])):
        table.add_column(name, justify="right" if name in ("runs", "done", "time left") else "left")
    for artifact in found.artifacts:
        runs = {cell.run for cell in found.cells[artifact.id].values() if cell.run is not None}
        wanted = {(run, seed) for run in runs for seed in request.seeds}
        row = [artifact.id, artifact.title, " ".join(artifact.claims), str(len(wanted)), str(len(wanted & done))]
        if times:
            row.append(_time(found, wanted - done))
        table.add_row(*map(escape, row))
    console = Console(highlight=False)
    console.print(table)
    seeds = ", ".join(map(str, request.seeds))
    everything = {(run, seed) for run in found.runs for seed in request.seeds}
    time = f", about {_time(found, everything - done)} left" if times and everything - done else ""
    total = f"{len(everything)} runs, of which {len(everything & done)} are done{time}"
    about_times = f" Times are for the {cores()} CPU cores of this machine." if times else ""
    scale = found.scale
    missing = f"`dualtemp reproduce ID --scale {scale.name}` runs what is missing."
    console.print(
        f"\nScale {scale.name}: {scale.about}. Seeds {seeds}. Runs shared by several tables are made once: "
        f"{total}.{about_times}\n"
        + (f"This scale is retired, and nothing more is run at it: {scale.retired}." if scale.retired else missing),
        soft_wrap=True,
    )


def done_runs(request: Request, found: PaperPlan) -> set[tuple[str, int]]:
    """Return the (run, seed) pairs that have a result."""
    results = Results(request.results)
    jobs = make_jobs(found, request.seeds, known_facts(found, results))
    return {place for place, job in jobs.items() if results.read(job) is not None}


def _time(found: PaperPlan, left: set[tuple[str, int]]) -> str:
    seconds = [expected_seconds(found.runs[run].with_seed(seed)) for run, seed in left]
    known = [one for one in seconds if one is not None]
    if len(known) < len(seconds):
        return "?"
    return _words(sum(known) / min(cores(), len(known))) if known else "-"


def _words(seconds: float) -> str:
    return duration(seconds) if seconds < TWO_DAYS else f"{seconds / 86400:,.0f} days"
