"""Execute a single run of a grid, in whichever process takes it."""

import json
import os
import shutil
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from dualtemp.config import Settings
from dualtemp.engines.engine import Place
from dualtemp.errors import Unreachable, UserError, writing
from dualtemp.file_lock import Busy, locked
from dualtemp.grids.known_data import set_name
from dualtemp.grids.results import Job, Results, takes_backbone_of_start
from dualtemp.grids.same_weights import CONTENT, weights_content

BUSY = "busy"  # another process is executing this run
VERSIONS = ("dualtemp", "python", "torch", "torchvision", "timm", "device", "threads")


def execute(place: Place, job: Job, results: Path, keep: bool) -> tuple[str, str]:
    """Execute a run at a place and write its progress to a file; returns the result of `perform`."""
    folder = Results(results)
    return perform(job, folder, place.device, place.threads, ProgressFile(folder.progress_file(job), job), keep)


class ProgressFile:
    """An observer that writes a run's progress to a file, at most twice a second, for commands that wait for it."""

    def __init__(self, path: Path, job: Job) -> None:
        self.path, self.epochs, self.written_at = path, job.settings.epochs, 0.0

    def begin(self, path: Path, chosen: Any) -> None:
        """Write nothing."""

    def step(self, epoch: int, step: int, steps: int, loss: float) -> None:
        """Write the progress; a full disk only delays the progress, and does not end the run."""
        if time.monotonic() - self.written_at > 0.5:
            self.written_at = time.monotonic()
            beside = self.path.with_suffix(f".{os.getpid()}")
            with suppress(OSError):
                beside.write_text(f"{(epoch + step / steps) / self.epochs:.6f}")
                beside.replace(self.path)

    def epoch(self, metrics: dict[str, Any]) -> None:
        """Write nothing; steps have reported the progress."""

    def note(self, text: str) -> None:
        """Drop notes."""

    def close(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


def perform(
    job: Job, results: Results, device: str = "auto", threads: int = 1, watch: Any = None, keep: bool = False
) -> tuple[str, str]:
    """Execute a run unless it has a result or another process is executing it; return its status and why it failed.

    A run left behind by a killed process is resumed. Once the result is written, the run's folder is removed, unless
    `keep`. A disk that cannot be written to, or missing images, are not a result of the run: they raise UserError, and
    the run's progress is kept.
    """
    results.make_folders()
    with ExitStack() as held:
        try:
            with writing(results.runs, "give another --results"):
                held.enter_context(locked(results.lock_file(job), patience=0, remove=True))
            result = results.read(job)
            if result is None:
                result = make_result(job, results.run_folder(job), device, threads, watch)
                results.write(job, result)
        except Busy:  # another process executes it, perhaps a manual resume
            return BUSY, ""
        if not keep:
            shutil.rmtree(results.run_folder(job), ignore_errors=True)
    return result["status"], result.get("reason", "")


def with_all_given(chosen: Settings) -> Settings:
    """Mark every setting as given, so that none of the paper's is replaced by one chosen for the images.

    The exception is a backbone that was not given, which comes from the run's start.
    """
    left = {"backbone"} if takes_backbone_of_start(chosen) else set()
    return chosen.model_copy(update=chosen.model_dump(exclude=left))


def make_result(job: Job, folder: Path, device: str, threads: int, watch: Any) -> dict[str, Any]:
    """Execute or resume a run and return its result; failure and collapse are results too.

    Problems that are not the run's own raise UserError, or Busy if another process uses the folder.
    """
    from dualtemp.runs.folder import RunFolder
    from dualtemp.runs.kept_encoder import kept_metrics
    from dualtemp.training.launch import ExecutionOptions
    from dualtemp.training.resume import resume_run
    from dualtemp.training.start import start

    options = ExecutionOptions(device=device, threads=threads, quiet=True)
    try:
        refuse_absent_images(job.settings.data)
        metrics = None
        if (folder / "config.yaml").exists():
            try:
                metrics = resume_run(folder, None, options, watch)
            except UserError as error:
                if outside_trouble(error) is not None:
                    raise
                # What is left of it is of no use.
                shutil.rmtree(folder, ignore_errors=True)
        if metrics is None:
            metrics = start(with_all_given(job.settings), folder, options, watch)
        wanted = {name: json.loads(asked) for name, asked in job.measured}
        measured = {}
        if wanted:
            from dualtemp.analysis.measurements import measure

            measured = measure(folder, wanted, str(options.open_device()))
    except (Exception, MemoryError) as error:
        trouble = outside_trouble(error)
        if isinstance(trouble, Busy):
            raise
        if trouble is not None:
            raise UserError(describe_outside_trouble(trouble, folder)) from None
        said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return {"status": "failed", "reason": " ".join(said.split())}
    run = RunFolder(folder)
    chosen, seconds = run.settings(), metrics["seconds"]
    if chosen.stop_below_start or chosen.stop_by_judge:
        metrics = kept_metrics(run.history(), chosen)
    content = weights_content(chosen)
    with_versions = {name: value for name, value in run.read_environment().items() if name in VERSIONS}
    return {
        "status": "collapsed" if metrics.get("collapsed") else "done",
        "metrics": metrics,
        "losses": [line["loss"] for line in run.history()],
        "measured": measured,
        "seconds": seconds,
        "versions": with_versions,
        **({CONTENT: content} if content else {}),
    }


def refuse_absent_images(data: str) -> None:
    """Raise ImagesGone if the user's own images are not where they were."""
    from dualtemp.data.images import ImagesGone
    from dualtemp.data.sources.opening import means_shards

    if set_name(data) is None and not means_shards(data) and not os.path.exists(os.path.expanduser(data)):
        raise ImagesGone(f"{data} is gone: put it back")


def outside_trouble(error: BaseException) -> BaseException | None:
    """Return the external cause that ended a run, if any: the disk, a folder in use, missing images, the hub.

    It may be the error itself or one of its causes.
    """
    from dualtemp.data.images import ImagesGone

    outside = (OSError, Busy, ImagesGone, Unreachable)
    return next((one for one in (error, error.__context__) if isinstance(one, outside)), None)


def describe_outside_trouble(trouble: BaseException, folder: Path) -> str:
    """A line on what to do before a run can continue."""
    if isinstance(trouble, OSError):
        return f"{folder} cannot continue ({trouble.strerror or trouble}): make room, then repeat the same command"
    return f"{trouble}; then repeat the same command, which continues"
