from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paper.smoke import tiny_job

from dualtemp.engines.engine import Outcome, Submitted, Task
from dualtemp.file_lock import locked
from dualtemp.grids import progress
from dualtemp.grids.progress import RunsDisplay
from dualtemp.grids.results import Job, Results
from dualtemp.grids.run_missing import forget_failure, run_missing

DONE = {"status": "done", "metrics": {"probe_top1": 50.0}}
FAILED = {"status": "failed", "reason": "its node is down"}


class Idle:
    """An engine that executes nothing; it tells which results were there when a run was submitted."""

    pause, at_once = 0.001, 1

    def __init__(self, results: Results) -> None:
        self.results, self.there = results, dict[str, bool]()

    def submit(self, tasks: Sequence[Task]) -> list[Submitted]:
        for task in tasks:
            self.there[task.name] = (self.results.path / f"{task.name}.json").exists()
        return [Ended() for _ in tasks]

    def close(self) -> None: ...


class Ended:
    def outcome(self) -> Outcome:
        return Outcome(("done", ""))


def with_result(results: Results, job: Job, result: dict[str, Any]) -> Job:
    results.write(job, result)
    return job


def test_a_failed_run_is_retried_and_what_another_command_has_finished_stays(tmp_path: Path) -> None:
    results = Results(tmp_path)
    finished, failed = with_result(results, tiny_job(1), DONE), with_result(results, tiny_job(2), FAILED)
    engine = Idle(results)
    assert run_missing([finished, failed, tiny_job(3)], engine, tmp_path) == 0
    assert engine.there == {finished.name: True, failed.name: False, tiny_job(3).name: False}
    found = results.read(finished)
    assert found is not None
    assert found["metrics"] == DONE["metrics"]


@pytest.mark.parametrize("result", [DONE, FAILED])
def test_the_result_of_a_run_that_another_command_executes_is_left_to_it(tmp_path: Path, result: Any) -> None:
    results = Results(tmp_path)
    job = with_result(results, tiny_job(), result)
    with locked(results.lock_file(job)):
        forget_failure(job, results)
    assert results.read(job) is not None


def test_the_time_left_counts_only_what_was_done_since_the_command_began(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 1000.0)
    monkeypatch.setattr(progress, "time", clock)
    resumed, fresh = tiny_job(1), tiny_job(2)  # both cost the same
    display = RunsDisplay([resumed, fresh], live=False, begun=[resumed.name])
    clock.monotonic = lambda: 1100.0
    display.moved(resumed, 0.8)
    assert display.left == ""  # nothing says yet how fast it goes
    display.moved(resumed, 0.9)
    assert display.left == "18 min left"  # a tenth of a run in 100 s, and eleven tenths are left
    display.moved(fresh, 0.4)
    assert display.left == "2 min left"  # five tenths in 100 s, and seven are left


def test_a_run_that_another_command_has_begun_is_told_to_the_display(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, told = Results(tmp_path), list[list[str]]()
    results.run_folder(tiny_job(1)).mkdir(parents=True)

    class Display(RunsDisplay):
        def __init__(self, jobs: Any, begun: Any) -> None:
            told.append(list(begun))
            super().__init__(jobs, False, begun)

    monkeypatch.setattr("dualtemp.grids.run_missing.RunsDisplay", Display)
    run_missing([tiny_job(1), tiny_job(2)], Idle(results), tmp_path)
    assert told == [[tiny_job(1).name]]
