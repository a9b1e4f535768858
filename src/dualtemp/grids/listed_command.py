"""The flags that end commands which are printed for later. Needs no torch."""

from dualtemp.grids.results import Job
from dualtemp.plugins import plugins


def words_for_one_run(job: Job, retry: bool) -> list[str]:
    """Return the flags that execute this run alone, with this process's plugins; retry: even if it has failed."""
    return [*words_for_plugins(), *(["--retry"] if retry else []), "--jobs", "1", "--cell", job.name]


def words_for_plugins() -> list[str]:
    """Return the flags that load this process's plugins."""
    return [word for path in plugins() for word in ("--plugin", str(path))]
