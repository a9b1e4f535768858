"""The flags that end every command printed by --list. Needs no torch."""

from dualtemp.grids.results import Job
from dualtemp.plugins import plugins


def words_for_one_run(job: Job, retry: bool) -> list[str]:
    """Return the flags that execute this run alone, with this process's plugins; retry: even if it has failed."""
    files = [word for path in plugins() for word in ("--plugin", str(path))]
    return [*files, *(["--retry"] if retry else []), "--jobs", "1", "--cell", job.name]
