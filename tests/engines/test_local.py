import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_processes import PATIENCE
from engines.tasks import fail, save_when_stopped, tell_place, wait_forever

from dualtemp.engines import choice
from dualtemp.engines.engine import Outcome, Place, Submitted, Task
from dualtemp.engines.local import LocalEngine
from dualtemp.errors import UserError
from dualtemp.training.signals import Stopped


def ended(*tasks: Submitted) -> list[Outcome]:
    deadline = time.monotonic() + PATIENCE
    while any(task.outcome() is None for task in tasks):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [outcome for task in tasks if (outcome := task.outcome()) is not None]


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_each_task_has_a_place_and_a_process_carries_out_task_after_task() -> None:
    engine = LocalEngine([Place("cpu", 1), Place("meta", 2)])
    assert engine.at_once == 2
    try:
        first = ended(*engine.submit([Task("a", tell_place, (1,)), Task("b", tell_place, (2,))]))
        second = ended(*engine.submit([Task("c", tell_place, (3,)), Task("d", tell_place, (4,))]))
    finally:
        engine.close()
    told = [outcome.value for outcome in first + second]
    assert [(device, threads, x) for device, threads, _, x in told] == [
        ("cpu", 1, 1),
        ("meta", 2, 2),
        ("cpu", 1, 3),
        ("meta", 2, 4),
    ]
    assert [pid for _, _, pid, _ in told[:2]] == [pid for _, _, pid, _ in told[2:]]
    assert len({pid for _, _, pid, _ in told} | {os.getpid()}) == 3


@pytest.mark.parametrize(
    ("jobs", "threads", "expected"),
    [(None, None, (8, 1)), (None, 3, (2, 3)), (None, 20, (1, 20)), (4, None, (4, 2)), (16, 2, (16, 2))],
)
def test_tasks_at_once_have_no_more_threads_than_there_are_cores_unless_told(
    monkeypatch: pytest.MonkeyPatch, jobs: int | None, threads: int | None, expected: tuple[int, int], tmp_path: Path
) -> None:
    monkeypatch.setattr(choice, "cores", lambda: 8)
    engine = choice.open_engine(choice.EngineOptions(jobs=jobs, threads=threads, device="cpu"), tmp_path)
    assert isinstance(engine, LocalEngine)
    assert (engine.at_once, {slot.place.threads for slot in engine._slots}) == (expected[0], {expected[1]})


@pytest.mark.parametrize(
    ("device", "places"),
    [("auto", ["cuda:0", "cuda:1"]), ("cuda", ["cuda:0", "cuda:1"]), ("cuda:1", ["cuda:1"]), ("cpu", ["cpu"] * 8)],
)
def test_a_gpu_has_one_task_at_once_also_if_it_is_named(
    monkeypatch: pytest.MonkeyPatch, device: str, places: list[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(choice, "cores", lambda: 8)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    engine = choice.open_engine(choice.EngineOptions(device=device), tmp_path)
    assert isinstance(engine, LocalEngine)
    assert [slot.place.device for slot in engine._slots] == places


def test_a_killed_process_takes_its_own_task_with_it_and_its_place_goes_on(tmp_path: Path) -> None:
    engine = LocalEngine([Place("cpu"), Place("meta")])
    try:
        killed, saved = engine.submit(
            [
                Task("killed", wait_forever, (tmp_path / "killed",)),
                Task("saved", save_when_stopped, (tmp_path / "saved",)),
            ]
        )
        signs = [tmp_path / "killed", tmp_path / "saved"]
        until(lambda: all(sign.exists() and sign.read_text() for sign in signs))
        os.kill(int((tmp_path / "killed").read_text()), signal.SIGKILL)
        assert ended(killed)[0].lost
        assert saved.outcome() is None
        assert ended(*engine.submit([Task("next", tell_place, (5,))]))[0].value[::3] == ("cpu", 5)
        assert saved.outcome() is None
    finally:
        engine.close()
    assert saved.outcome() == Outcome(stopped=True)
    assert (tmp_path / "saved.saved").exists()


def test_a_users_error_is_raised_and_the_place_stays_usable() -> None:
    engine = LocalEngine([Place("cpu")])
    try:
        (task,) = engine.submit([Task("wrong", fail, (UserError("no room"),))])
        with pytest.raises(UserError, match="no room"):
            ended(task)
        assert ended(*engine.submit([Task("next", tell_place, (1,))]))[0].value[0] == "cpu"
    finally:
        engine.close()


def test_a_run_that_was_stopped_and_has_saved_is_not_lost() -> None:
    engine = LocalEngine([Place("cpu")])
    try:
        (task,) = engine.submit([Task("stopped", fail, (Stopped("stopped; saved", signal.SIGTERM),))])
        assert ended(task) == [Outcome(stopped=True)]
        assert ended(*engine.submit([Task("next", tell_place, (1,))]))[0].value[0] == "cpu"
    finally:
        engine.close()
    back = pickle.loads(pickle.dumps(Stopped("stopped; saved", signal.SIGTERM)))
    assert (str(back), back.number) == ("stopped; saved", signal.SIGTERM)


PROGRAM = """
import sys, time
from pathlib import Path
from engines.tasks import save_when_stopped, wait_forever
from dualtemp.engines.engine import Place, Task
from dualtemp.engines.local import LocalEngine

if __name__ == "__main__":
    engine, folder = LocalEngine([Place("cpu")] * 2), Path(sys.argv[1])
    engine.submit([Task("a", save_when_stopped, (folder / "a",)), Task("b", wait_forever, (folder / "b",))])
    time.sleep(1e6)
"""


def test_processes_of_a_killed_command_save_and_end(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), str(tests / "support"), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    command = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path})
    signs = [tmp_path / "a", tmp_path / "b"]
    until(lambda: all(sign.exists() and sign.read_text() for sign in signs))
    command.kill()
    command.wait()
    until(lambda: not any(lives(int(sign.read_text())) for sign in signs))
    assert (tmp_path / "a.saved").exists()


def lives(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
