"""The engine for Slurm without Slurm: submitit's own local executor carries out the jobs as real processes.

tests/cluster/slurm_here.sh runs the same engine on a real Slurm of one node.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_processes import PATIENCE
from engines.tasks import fail, tell_place, wait_forever
from paper.smoke import tiny_job

from dualtemp.engines import slurm
from dualtemp.engines.engine import Outcome, Place, Submitted, Task
from dualtemp.engines.slurm import Queue, SlurmEngine, open_slurm, parse_parameters
from dualtemp.errors import UserError
from dualtemp.grids.results import Results
from dualtemp.grids.worker import ProgressFile, execute, perform

submitit: Any = pytest.importorskip("submitit")


class LocalQueue(Queue):
    """Knows which processes of submitit's local executor live, as `squeue` knows which jobs do."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, Any] = {}

    def has(self, job: str) -> bool:
        return self.processes[job].poll() is None

    def cancel(self, jobs: Any) -> None:
        for job in jobs:
            self.processes[job].kill()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmEngine:
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), str(tests / "support"), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setattr(slurm, "GRACE", 0.1)
    monkeypatch.setattr(slurm, "LOOK", 0.0)
    executor = submitit.LocalExecutor(tmp_path / "jobs")
    executor.update_parameters(timeout_min=600)
    engine = SlurmEngine(executor, Place("cpu", 1), at_once=10)
    engine.queue = LocalQueue()
    return engine


def submit(engine: SlurmEngine, *tasks: Task) -> list[Submitted]:
    submitted = list(engine.submit(tasks))
    for one in submitted:
        engine.queue.processes[one.job.job_id] = one.job._process  # pyright: ignore
    return submitted  # pyright: ignore


def ended(task: Submitted) -> Outcome:
    deadline = time.monotonic() + PATIENCE
    while (outcome := task.outcome()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return outcome


def test_jobs_return_values_and_users_errors_and_are_lost_when_killed(engine: SlurmEngine, tmp_path: Path) -> None:
    done, wrong, killed = submit(
        engine,
        Task("a", tell_place, (7,)),
        Task("b", fail, (UserError("no room"),)),
        Task("c", wait_forever, (tmp_path / "c",)),
    )
    device, threads, process, x = ended(done).value
    assert (device, threads, x) == ("cpu", 1, 7)
    assert process != os.getpid()
    with pytest.raises(UserError, match="no room"):
        ended(wrong)
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "c").exists() or not (tmp_path / "c").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert killed.outcome() is None
    engine.queue.processes[killed.job.job_id].kill()  # pyright: ignore
    os.kill(int((tmp_path / "c").read_text()), signal.SIGKILL)
    assert "without a result" in ended(killed).lost
    engine.close()


@pytest.mark.slow
def test_a_run_whose_time_is_over_saves_and_goes_on_when_its_job_is_requeued(
    engine: SlurmEngine, tmp_path: Path
) -> None:
    job = tiny_job(epochs=30, evaluate_every=30)
    results, whole = Results(tmp_path / "results"), Results(tmp_path / "whole")
    (task,) = submit(engine, Task(job.name, execute, (job, results.path, False)))
    controller: int = task.job._process.pid  # pyright: ignore
    deadline = time.monotonic() + PATIENCE
    while results.progress(job) is None:
        assert task.outcome() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (process,) = Path(f"/proc/{controller}/task/{controller}/children").read_text().split()
    os.kill(int(process), signal.SIGUSR2)  # as Slurm does, which submitit has asked for it
    assert ended(task).value == ("done", "")
    logs = "".join(path.read_text() for path in (tmp_path / "jobs").glob("*log*"))
    assert logs.count("stopping after this step") == 1
    assert logs.count("Requeued job") == 1
    assert perform(job, whole, "cpu", 1, ProgressFile(tmp_path / "progress", job))[0] == "done"
    found, expected = results.read(job), whole.read(job)
    assert found is not None
    assert expected is not None
    assert found["losses"] == expected["losses"]
    engine.close()


def test_a_job_is_not_lost_while_slurm_is_too_busy_to_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "LOOK", 0.0)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    squeue = tmp_path / "squeue"

    def answer(script: str) -> None:
        squeue.write_text(f"#!/bin/sh\n{script}\n")
        squeue.chmod(0o755)

    queue = Queue()
    answer("exit 1")
    assert queue.has("7_0"), "nothing was ever said of it"
    answer("echo 7_0 RUNNING")
    assert queue.has("7_0")
    answer("exit 1")
    assert queue.has("7_0"), "what was said before stands"
    assert queue.has("7_1"), "submitted since then"
    answer("echo 7_0 RUNNING; echo 7_1 COMPLETED")
    assert [queue.has(job) for job in ("7_0", "7_1")] == [True, False]
    answer("true")
    assert not queue.has("7_0")


def test_while_slurm_does_not_answer_it_is_asked_once_for_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    squeue, asked = tmp_path / "squeue", tmp_path / "asked"
    squeue.write_text(f"#!/bin/sh\necho >> {asked}\nexit 1\n")
    squeue.chmod(0o755)
    queue = Queue()
    assert all(queue.has(f"7_{number}") for number in range(20))
    assert asked.read_text() == "\n"


def test_parameters_are_sbatchs_with_numbers_as_numbers() -> None:
    found = parse_parameters(["partition=gpu", "--time=240", "gpus-per-node=1", "mem=16GB"])
    assert found == {"partition": "gpu", "time": 240, "gpus_per_node": 1, "mem": "16GB"}
    with pytest.raises(UserError, match="give KEY=VALUE"):
        parse_parameters(["partition"])


class DeclaredArrays:
    """An executor of arrays as Slurm has them: of each, so many jobs run at a time, however many other arrays run."""

    def __init__(self, folder: Path, parallelism: int) -> None:
        self.folder, self.parallelism = folder, parallelism
        self.arrays: list[list[Any]] = []

    @contextmanager
    def batch(self) -> Iterator[None]:
        self.arrays.append([])
        yield

    def submit(self, _: Any) -> Any:
        name = f"{len(self.arrays)}_{len(self.arrays[-1])}"
        paths = SimpleNamespace(result_pickle=self.folder / name)
        self.arrays[-1].append(SimpleNamespace(job_id=name, paths=paths))
        return self.arrays[-1][-1]

    def running(self) -> list[Any]:
        left = [[job for job in array if not job.paths.result_pickle.exists()] for array in self.arrays]
        return [job for array in left for job in array[: self.parallelism]]


def opened_with_srun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, jobs: int | None, asked: Sequence[str]
) -> SlurmEngine:
    """The engine as the command opens it; its jobs are only declared."""
    (folder / "bin").mkdir()
    (folder / "bin" / "srun").write_text("#!/bin/sh\n")
    (folder / "bin" / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"))
    engine = open_slurm(folder / "jobs", Place(), jobs, 0, asked)
    engine.executor = DeclaredArrays(folder, engine.executor.parameters["array_parallelism"])
    return engine


def test_jobs_are_named_as_asked_else_after_this_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(submitit.SlurmExecutor, "update_parameters", lambda self, **values: given.append(values))
    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", lambda self: 2)  # as if there were an `srun`
    open_slurm(tmp_path, Place(), None, 0, [])
    open_slurm(tmp_path, Place(), None, 0, ["job-name=mine"])
    assert [values["job_name"] for values in given] == ["dualtemp", "mine"]


@pytest.mark.parametrize(
    ("jobs", "asked", "expected"), [(1, [], 1), (7, [], 7), (None, [], 30), (None, ["array_parallelism=4"], 4)]
)
def test_no_more_jobs_run_at_a_time_than_asked_for_however_many_arrays_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int | None, asked: list[str], expected: int
) -> None:
    monkeypatch.setattr(slurm, "LARGEST_ARRAY", 30)
    engine = opened_with_srun(tmp_path, monkeypatch, jobs, asked)
    waiting, submitted, most = 75, [], 0
    while waiting or submitted:
        if (some := min(engine.at_once - len(submitted), waiting)) > 0:
            submitted += engine.submit([Task("a", tell_place)] * some)
            waiting -= some
        running = engine.executor.running()
        most = max(most, len(running))
        running[len(submitted) % len(running)].paths.result_pickle.touch()  # any of them ends first
        submitted = [task for task in submitted if task.outcome_file_is_missing()]
    assert most == expected
    assert len(engine.executor.arrays[0]) == 30, "Slurm knows as many as it can, so that they gain in priority"
    assert sum(map(len, engine.executor.arrays)) == 75


def test_without_slurm_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no `srun` here"):
        open_slurm(tmp_path / "jobs", Place(), None, 0, [])
