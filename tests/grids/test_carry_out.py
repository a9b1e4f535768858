"""What may become of the tasks of a grid, with an engine whose tasks end as declared."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from paper.smoke import tiny_job

from dualtemp.engines.engine import Outcome, Task
from dualtemp.errors import UserError
from dualtemp.file_lock import locked
from dualtemp.grids.carry_out import carry_out
from dualtemp.grids.results import Job, Results
from dualtemp.grids.worker import BUSY


class Heard:
    def __init__(self) -> None:
        self.moves: dict[str, float] = {}
        self.over: dict[str, str] = {}

    def moved(self, job: Job, fraction: float) -> None:
        self.moves[job.name] = fraction

    def ended(self, job: Job, status: str, reason: str) -> None:
        assert job.name not in self.over
        self.over[job.name] = status


class Told:
    """A task with its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self.told = outcome

    def outcome(self) -> Outcome:
        return self.told


class Declared:
    """An engine whose tasks end as declared, one after another."""

    pause = 0.001

    def __init__(self, *outcomes: Outcome, at_once: int = 1) -> None:
        self.outcomes, self.at_once, self.closed = list(outcomes), at_once, False
        self.submitted: list[str] = []

    def submit(self, tasks: Sequence[Task]) -> list[Told]:
        assert len(tasks) <= self.at_once
        self.submitted += [task.name for task in tasks]
        return [Told(self.outcomes.pop(0)) for _ in tasks]

    def close(self) -> None:
        self.closed = True


DONE, LOST, STOPPED = Outcome(("done", "")), Outcome(lost="its node is down"), Outcome(stopped=True)


def test_a_run_whose_process_is_lost_is_submitted_once_more_and_then_fails(tmp_path: Path) -> None:
    first, second = tiny_job(1), tiny_job(2)
    engine, heard = Declared(LOST, DONE, LOST), Heard()
    assert carry_out([first, second], engine, tmp_path, heard) == Counter(done=1, failed=1)
    assert engine.submitted == [first.name, second.name, first.name]
    assert heard.over == {second.name: "done", first.name: "failed"}
    found = Results(tmp_path).read(first)
    assert found is not None
    assert found["reason"] == "its node is down, twice in succession"
    assert engine.closed


def test_a_run_that_was_stopped_and_saved_is_submitted_as_often_as_it_takes(tmp_path: Path) -> None:
    engine = Declared(STOPPED, STOPPED, STOPPED, STOPPED, DONE)
    assert carry_out([tiny_job()], engine, tmp_path, Heard()) == Counter(done=1)


def test_as_many_runs_are_submitted_together_as_the_engine_takes(tmp_path: Path) -> None:
    jobs = [tiny_job(seed) for seed in range(1, 6)]
    engine = Declared(*[DONE] * 5, at_once=2)
    assert carry_out(jobs, engine, tmp_path, Heard()) == Counter(done=5)
    assert engine.submitted == [job.name for job in jobs]


@pytest.mark.parametrize("leaves_a_result", [True, False])
def test_a_run_of_another_command_is_waited_for_and_taken_over_if_it_is_left(
    leaves_a_result: bool, tmp_path: Path
) -> None:
    job, results, heard = tiny_job(), Results(tmp_path), Heard()
    results.make_folders()
    engine = Declared(Outcome((BUSY, "")), DONE)
    begun = threading.Event()

    def other() -> None:
        with locked(results.lock_file(job), remove=True):
            begun.set()
            results.progress_file(job).write_text("0.25")
            while job.name not in heard.moves:  # it is shown how far the other one is
                time.sleep(0.01)
            if leaves_a_result:
                results.write(job, {"status": "collapsed", "metrics": {}})

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    outcome = carry_out([job], engine, tmp_path, heard)
    thread.join()
    assert heard.moves == {job.name: 0.25}
    assert outcome == (Counter(collapsed=1) if leaves_a_result else Counter(done=1))
    assert engine.submitted == [job.name] * (1 if leaves_a_result else 2)


def test_whatever_happens_the_engine_is_closed(tmp_path: Path) -> None:
    class Broken(Declared):
        def submit(self, tasks: Sequence[Task]) -> list[Told]:
            raise UserError("the queue is closed")

    engine = Broken()
    with pytest.raises(UserError, match="the queue is closed"):
        carry_out([tiny_job()], engine, tmp_path, Heard())
    assert engine.closed
