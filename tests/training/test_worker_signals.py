"""Signals to the processes that read photographs: the run goes on to the same bits, or ends with one line."""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from command_processes import OFTEN, Command, Commands, halted, halting, until
from drawn_photos import draw_photos
from run_contents import different, everything

AT_STEPS = halting(".step-*.part", 2, 7, cut=False)  # of ten


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("photographs")
    for label in (0, 1):
        draw_photos(folder / str(label), 48, 48 * label, ".jpg")
    how = ("--image-size", "16", "--batch", "16", "--epochs", "2", "--backbone", "resnet_mini", "--workers", "2")
    return ("--data", str(folder), *how)


def readers(command: Command) -> list[int]:
    """The worker processes of a run."""
    found = []
    for thread in Path(f"/proc/{command.pid}/task").iterdir():
        with suppress(OSError):
            found += [int(pid) for pid in (thread / "children").read_text().split()]
    return found


def stopped_with_workers(command: Command) -> list[int]:
    """Stop a run at a moment at which it has workers, so that it does not end them before the test does."""
    while True:
        command.send(signal.SIGSTOP)
        assert until(command, lambda: halted(command))
        if workers := readers(command):
            return workers
        command.send(signal.SIGCONT)
        time.sleep(0.005)


def signals_of(pid: int, kind: str) -> set[int]:
    """The signals that a process catches (SigCgt) or ignores (SigIgn)."""
    text = re.search(rf"{kind}:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    assert text is not None
    return {number for number in range(1, 65) if int(text[1], 16) >> (number - 1) & 1}


def test_workers_have_no_handlers_of_the_main_process(
    words: tuple[str, ...], commands: Commands, tmp_path: Path
) -> None:
    command = commands.start("train", *words, *OFTEN, "--out", tmp_path / "run", first=AT_STEPS)
    assert until(command, lambda: halted(command))
    workers = stopped_with_workers(command)
    assert len(workers) == 2
    assert {signal.SIGINT, signal.SIGTERM} <= signals_of(command.pid, "SigCgt")
    for pid in workers:
        assert not {signal.SIGINT, signal.SIGTERM} & signals_of(pid, "SigCgt")
        assert signal.SIGINT in signals_of(pid, "SigIgn"), "Ctrl-C is for the main process to answer"
        assert signal.SIGTERM not in signals_of(pid, "SigIgn")
    command.send(signal.SIGKILL)
    command.wait()


@pytest.mark.parametrize(
    ("before", "number"), [(None, signal.SIGKILL), (None, signal.SIGTERM), (signal.SIGSTOP, signal.SIGKILL)]
)
@pytest.mark.slow
def test_a_run_whose_workers_are_killed_goes_on_to_the_same_bits(
    before: int | None, number: int, words: tuple[str, ...], commands: Commands, run_once: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    command = commands.start("train", *words, *OFTEN, "--out", path, first=AT_STEPS)
    victims = []
    for _ in (2, 7):
        assert until(command, lambda: halted(command))
        workers = stopped_with_workers(command)
        if before is not None:
            for pid in workers:
                os.kill(pid, before)
        os.kill(workers[0], number)
        victims.append(workers[0])
        command.send(signal.SIGCONT)
    ended = command.wait()
    assert ended.code == 0, ended.err
    assert different(everything(path), everything(run_once(*words))) == []
    told = f"dualtemp: worker process {victims[0]} ({signal.Signals(number).name}), which reads images, has ended"
    assert ended.err.startswith(told)
    assert len(ended.err.splitlines()) <= 2, "one line for each"


@pytest.mark.slow
def test_sigterm_to_all_processes_of_a_run_stops_it_as_one_to_the_main_process_does(
    words: tuple[str, ...], commands: Commands, run_once: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    command = commands.start("train", *words, *OFTEN, "--out", path, first=AT_STEPS)
    assert until(command, lambda: halted(command))
    for pid in (*stopped_with_workers(command), command.pid):
        os.kill(pid, signal.SIGTERM)
    command.send(signal.SIGCONT)
    ended = command.wait()
    assert ended.code == 130, ended.err
    assert ended.err.count("stopping after this step") == 1
    assert commands.run("resume", path, "--workers", "2").code == 0
    assert different(everything(path), everything(run_once(*words))) == []


def test_workers_that_die_again_and_again_end_the_run_with_one_line_and_a_checkpoint(
    words: tuple[str, ...], commands: Commands, run_once: Callable, tmp_path: Path
) -> None:
    # Many steps an epoch: batches read ahead must not reach its end, because an epoch whose images cannot be read is
    # trained on but not measured.
    words, path = (*words, "--batch", "4"), tmp_path / "run"
    # Every worker that starts from now on kills itself: nobody has to be quick enough to meet it.
    now = tmp_path / "now"
    deadly = f"""
def die():
    if os.path.exists({str(now)!r}): os.kill(os.getpid(), signal.SIGKILL)
os.register_at_fork(after_in_child=die)
"""
    halt = halting(".step-*.part", 2, cut=False)
    command = commands.start("train", *words, *OFTEN, "--out", path, first=halt + deadly)
    assert until(command, lambda: halted(command))
    now.touch()
    os.kill(stopped_with_workers(command)[0], signal.SIGKILL)
    command.send(signal.SIGCONT)
    ended = command.wait()
    assert ended.code == 2, ended.err
    last = ended.err.splitlines()[-1]
    assert re.search(r"were killed 3 times at the same batch.*\(SIGKILL\).* fewer than 2 workers", last)
    assert f"`dualtemp resume {path}` goes on" in last
    assert commands.run("resume", path, "--workers", "2").code == 0
    assert different(everything(path), everything(run_once(*words))) == []
