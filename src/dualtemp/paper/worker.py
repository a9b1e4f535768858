"""A process that makes one run after another, and one such run."""

import json
import shutil
import signal
import time
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dualtemp.errors import UserError, writing
from dualtemp.file_lock import Busy, locked
from dualtemp.paper.results import Job, Results

BUSY = "busy"  # another process makes this run
VERSIONS = ("dualtemp", "python", "torch", "torchvision", "timm", "device", "threads")


def work(connection: Connection, results: Path, device: str, threads: int, keep: bool) -> None:
    """Make the runs that come through the connection, until it is closed; tell of progress and outcomes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it; a run handles it by itself
    folder = Results(results)
    try:
        while True:
            job = connection.recv()
            status, reason = perform(job, folder, device, threads, Teller(connection, job.settings.epochs), keep)
            connection.send(("end", status, reason))
    except UserError as error:
        with suppress(OSError):  # whoever listens may have stopped already
            connection.send(("trouble", str(error)))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


class Teller:
    """Tells a run's progress, twice a second at most; if nobody listens any more, the run ends."""

    def __init__(self, connection: Connection, epochs: int) -> None:
        self.connection, self.epochs, self.told = connection, epochs, 0.0

    def begin(self, path: Path, chosen: Any) -> None:
        """The beginning is not told."""

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """A step has been made."""
        if time.monotonic() - self.told > 0.5:
            self.told = time.monotonic()
            try:
                self.connection.send(("step", (epoch + step / steps) / self.epochs))
            except OSError:
                raise KeyboardInterrupt("nobody waits for this run any more") from None

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Epochs are not told."""

    def note(self, text: str) -> None:
        """Notes are not told."""

    def close(self) -> None:
        """The end is told by whoever made the run."""


def perform(
    job: Job, results: Results, device: str = "auto", threads: int = 1, watch: Any = None, keep: bool = False
) -> tuple[str, str]:
    """Make a run unless it is there or another process makes it; returns its status and, if it failed, why.

    A disk that cannot be written is no result of a run: UserError.

    What a killed process left of the run is gone on with. Once the result is written the run's folder is removed,
    unless `keep`.
    """
    results.make_folders()
    lock = results.runs / f".{job.name}.lock"
    with ExitStack() as held:
        try:
            with writing(results.runs, "give another --results"):
                held.enter_context(locked(lock, patience=0, remove=True))
        except Busy:
            return BUSY, ""
        result = results.read(job)
        if result is None:
            result = made(job, results.run_folder(job), device, threads, watch)
            results.write(job, result)
        if not keep:
            shutil.rmtree(results.run_folder(job), ignore_errors=True)
    return result["status"], result.get("reason", "")


def made(job: Job, folder: Path, device: str, threads: int, watch: Any) -> dict[str, Any]:
    """The result of a run; that it failed or collapsed is a result."""
    from dualtemp.runs.folder import RunFolder
    from dualtemp.training.launch import ExecutionOptions
    from dualtemp.training.resume import resume_run
    from dualtemp.training.start import start

    options = ExecutionOptions(device=device, threads=threads, quiet=True)
    try:
        metrics = None
        if (folder / "config.yaml").exists():
            try:
                metrics = resume_run(folder, None, options, watch)
            except UserError:  # what is left is of no use
                shutil.rmtree(folder, ignore_errors=True)
        if metrics is None:
            # Every setting counts as given: none of the paper's is replaced by one that would suit somebody's images.
            given = job.settings.model_copy(update=job.settings.model_dump())
            metrics = start(given, folder, options, watch)
        wanted = {name: json.loads(asked) for name, asked in job.measured}
        measured = {}
        if wanted:
            from dualtemp.analysis.measurements import measure

            measured = measure(folder, wanted, str(options.open_device()))
    except (Exception, MemoryError) as error:
        said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        trouble = error if isinstance(error, OSError) else error.__context__
        if isinstance(trouble, OSError):
            said = f"{folder} cannot go on ({trouble.strerror or trouble}): make room, then the same command goes on"
            raise UserError(said) from None
        return {"status": "failed", "reason": " ".join(said.split())}
    run = RunFolder(folder)
    with_versions = {name: value for name, value in run.read_environment().items() if name in VERSIONS}
    return {
        "status": "collapsed" if metrics.get("collapsed") else "done",
        "metrics": metrics,
        "losses": [line["loss"] for line in run.history()],
        "measured": measured,
        "seconds": metrics["seconds"],
        "versions": with_versions,
    }
