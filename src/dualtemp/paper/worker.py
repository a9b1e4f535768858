"""A process that executes one run after another, and a single run."""

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

BUSY = "busy"  # another process is executing this run
VERSIONS = ("dualtemp", "python", "torch", "torchvision", "timm", "device", "threads")


def work(connection: Connection, results: Path, device: str, threads: int, keep: bool) -> None:
    """Execute the runs received through the connection until it is closed; send back progress and outcomes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops this process; a run installs its own handler
    folder = Results(results)
    try:
        while True:
            job = connection.recv()
            status, reason = perform(
                job, folder, device, threads, ProgressSender(connection, job.settings.epochs), keep
            )
            connection.send(("end", status, reason))
    except UserError as error:
        with suppress(OSError):  # the parent may have stopped listening
            connection.send(("trouble", str(error)))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


class ProgressSender:
    """An observer that sends a run's progress, at most twice a second; if nobody listens any more, the run ends."""

    def __init__(self, connection: Connection, epochs: int) -> None:
        self.connection, self.epochs, self.sent_at = connection, epochs, 0.0

    def begin(self, path: Path, chosen: Any) -> None:
        """Send nothing."""

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Send the progress."""
        if time.monotonic() - self.sent_at > 0.5:
            self.sent_at = time.monotonic()
            try:
                self.connection.send(("step", (epoch + step / steps) / self.epochs))
            except OSError:
                raise KeyboardInterrupt("nobody waits for this run any more") from None

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Send nothing; steps have reported the progress."""

    def note(self, text: str) -> None:
        """Drop notes."""

    def close(self) -> None:
        """Send nothing; `work` sends the outcome."""


def perform(
    job: Job, results: Results, device: str = "auto", threads: int = 1, watch: Any = None, keep: bool = False
) -> tuple[str, str]:
    """Execute a run unless it has a result or another process is executing it; return its status and why it failed.

    A run that a killed process left behind is resumed. Once the result is written, the run's folder is removed, unless
    `keep`. A disk that cannot be written to is not a result of the run: it raises UserError.
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
            result = make_result(job, results.run_folder(job), device, threads, watch)
            results.write(job, result)
        if not keep:
            shutil.rmtree(results.run_folder(job), ignore_errors=True)
    return result["status"], result.get("reason", "")


def make_result(job: Job, folder: Path, device: str, threads: int, watch: Any) -> dict[str, Any]:
    """Execute or resume a run and return its result; failure and collapse are results too."""
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
            except UserError:  # the remains are of no use
                shutil.rmtree(folder, ignore_errors=True)
        if metrics is None:
            # Mark every setting as given, so that none of the paper's is replaced by one chosen for the images.
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
            said = f"{folder} cannot continue ({trouble.strerror or trouble}): make room, then repeat the same command"
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
