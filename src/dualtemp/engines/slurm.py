"""Tasks as jobs of a Slurm cluster, through submitit: in arrays of jobs, which are requeued when preempted."""

import contextlib
import getpass
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dualtemp.engines.carried import carry_out, outcome_of_told
from dualtemp.engines.engine import Outcome, Place, Task
from dualtemp.engines.terminable import terminable
from dualtemp.errors import UserError

PATIENCE = 60.0  # seconds for jobs to save when everything is stopped
LOOK = 5.0  # seconds between two queries to Slurm
GRACE = 15.0  # seconds after which the result of an ended job must be visible on a shared disk
ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
DEFAULTS = {"job_name": "dualtemp", "time": 720, "ntasks_per_node": 1, "nodes": 1}  # minutes; longer jobs are requeued
LARGEST_ARRAY = 1000  # jobs; 1001 is Slurm's own default limit
TIMEOUTS = 1000  # how often a job may run out of time and be requeued


class SlurmEngine:
    """An Engine of Slurm jobs.

    Args:
        executor: submitit's, with its parameters set.
        place: of every task.
        at_once: jobs that may be queued or running.
        running: jobs that may run at a time, by default all; the executor's own limit applies only within an array.
    """

    pause = 0.5

    def __init__(self, executor: Any, place: Place, at_once: int, running: int | None = None) -> None:
        self.executor, self.place, self.most, self.running = executor, place, at_once, running
        self.jobs: list[SlurmTask] = []
        self.queue = Queue()

    @property
    def at_once(self) -> int:
        """How many jobs may be submitted and not yet ended.

        Slurm limits how many jobs of one array run, but not across arrays. So the first array queues as many jobs as it
        can hold, and further jobs are submitted only once no more are left than may run at a time.
        """
        return self.most if self.running is None or not self.jobs else min(self.most, self.running)

    def submit(self, tasks: Sequence[Task]) -> Sequence["SlurmTask"]:
        """Submit tasks as one array."""
        try:
            with self.executor.batch():
                jobs = [self.executor.submit(Carried(task, self.place)) for task in tasks]
        except Exception as error:
            if type(error).__name__ not in ("FailedJobError", "CalledProcessError"):
                raise
            told = str(error).strip().splitlines()
            raise UserError(f"Slurm refuses the jobs: {told[-1] if told else error}; see --slurm") from None
        submitted = [SlurmTask(job, self.queue) for job in jobs]
        self.jobs = [job for job in self.jobs if job.outcome_file_is_missing()] + submitted
        return submitted

    def close(self) -> None:
        """Cancel the jobs that have not ended, letting them save: Slurm sends SIGTERM first."""
        left = [task for task in self.jobs if task.outcome_file_is_missing() and task.is_alive()]
        if left:
            self.queue.cancel([task.job.job_id for task in left])
        deadline = time.monotonic() + PATIENCE
        while any(task.is_alive() for task in left) and time.monotonic() < deadline:
            time.sleep(1.0)


class SlurmTask:
    """A task as a job of Slurm."""

    def __init__(self, job: Any, queue: "Queue") -> None:
        self.job, self.queue = job, queue
        self.submitted_at = time.monotonic()
        self.gone_since: float | None = None

    def outcome(self) -> Outcome | None:
        """Return how the job ended, by its result file, or lost if Slurm no longer lists it; None if it is requeued."""
        if not self.outcome_file_is_missing():
            state, value = self.job._get_outcome_and_result()
            if state == "error":
                raise RuntimeError(value)
            return outcome_of_told(value)
        if self.is_alive():
            self.gone_since = None
            return None
        self.gone_since = self.gone_since or time.monotonic()
        if time.monotonic() - self.gone_since < GRACE:
            return None
        return Outcome(lost=f"its job {self.job.job_id} has ended without a result")

    def outcome_file_is_missing(self) -> bool:
        """Whether the job has not written its result."""
        return not self.job.paths.result_pickle.exists()

    def is_alive(self) -> bool:
        """Whether Slurm has it in its queue, running, or about to be requeued."""
        return time.monotonic() - self.submitted_at < LOOK or self.queue.has(self.job.job_id)


class Queue:
    """This user's jobs by `squeue` (which, unlike sacct, needs no accounting), queried every LOOK seconds at most."""

    def __init__(self) -> None:
        self.asked_at = self.answered_at = -LOOK
        self.states = dict[str, str]()
        self.wanted_since: dict[str, float] = {}  # when each job was first asked about

    def has(self, job: str) -> bool:
        """Whether the job is waiting or running; True until Slurm has answered since the first query about the job."""
        since = self.wanted_since.setdefault(job, time.monotonic())
        if time.monotonic() - self.asked_at > LOOK:
            self.asked_at = time.monotonic()
            with contextlib.suppress(OSError, subprocess.SubprocessError):  # Slurm is busy: keep its last answer
                words = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i %T"]
                said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
                self.states = dict(line.split()[:2] for line in said.splitlines() if len(line.split()) >= 2)
                self.answered_at = time.monotonic()
        return self.answered_at < since or self.states.get(job, "COMPLETED") not in ENDED

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs; the next `has` queries Slurm at once."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["scancel", *jobs], check=False, capture_output=True, timeout=60)
        self.asked_at = -LOOK


class Carried:
    """What a job executes. submitit calls `checkpoint` before it requeues the job: the task stays the same."""

    def __init__(self, task: Task, place: Place) -> None:
        self.task, self.place = task, place

    def __call__(self) -> tuple[str, Any]:
        """Execute the task; if Slurm announces the end of the job's time, save and requeue it."""
        requeue = signal.getsignal(signal.SIGUSR2)
        try:
            with terminable():  # else submitit ignores SIGTERM until Slurm kills the process; runs handle it themselves
                return carry_out(self.task, self.place)
        except KeyboardInterrupt as error:  # a run has saved
            if getattr(error, "number", None) == signal.SIGUSR2 and callable(requeue):
                requeue(signal.SIGUSR2, None)
            raise

    def checkpoint(self) -> Any:
        """Submit the same task again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def open_slurm(folder: Path, place: Place, jobs: int | None, gpus: int, asked: Sequence[str]) -> SlurmEngine:
    """Open Slurm; logs go below `folder`, which all nodes see.

    jobs: how many run at a time, by default all; asked: parameters of sbatch as KEY=VALUE, such as partition=gpu.
    """
    try:
        import submitit
    except ImportError:
        raise UserError("--on slurm needs submitit: pip install 'dualtemp[slurm]'") from None
    parameters: dict[str, Any] = {**DEFAULTS, "cpus_per_task": place.threads}
    if gpus:
        parameters["gpus_per_node"] = gpus
    parameters["array_parallelism"] = LARGEST_ARRAY if jobs is None else jobs  # submitit's default is 256
    parameters |= parse_parameters(asked)
    try:
        executor = submitit.SlurmExecutor(folder.absolute(), max_num_timeout=TIMEOUTS)
    except RuntimeError:
        raise UserError("--on slurm: there is no `srun` here; start this command on a node of the cluster") from None
    try:
        executor.update_parameters(**parameters)
    except (ValueError, TypeError) as error:
        raise UserError(f"--slurm: {str(error).splitlines()[0]}") from None
    return SlurmEngine(executor, place, LARGEST_ARRAY, parameters["array_parallelism"])


def parse_parameters(asked: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE: whole numbers are numbers, `a-b` is the same key as `a_b`."""
    found: dict[str, Any] = {}
    for word in asked:
        name, sign, value = word.partition("=")
        if not sign or not name or not value:
            raise UserError(f"--slurm {word}: give KEY=VALUE, such as partition=gpu or time=240 (minutes)")
        found[name.strip("-").replace("-", "_")] = int(value) if value.isdigit() else value
    return found
