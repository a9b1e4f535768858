"""`embed --on`: parts as tasks of an engine, with the rows of one process; a task whose process is killed goes on."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_processes import Commands
from drawn_photos import draw_photos

from dualtemp.cli import main
from dualtemp.encoder.bank import bank_of_file, gather_rows
from dualtemp.encoder.embed import embed
from dualtemp.encoder.embed_on_engine import embed_on
from dualtemp.engines.engine import Engine, Place, Submitted, Task
from dualtemp.engines.local import LocalEngine
from dualtemp.errors import UserError


def kill_itself(place: Place) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Murderous:
    """An engine that kills the processes of the first tasks it is given."""

    def __init__(self, engine: Engine, deaths: int) -> None:
        self.engine, self.deaths, self.submitted = engine, deaths, list[str]()
        self.at_once, self.pause, self.close = engine.at_once, engine.pause, engine.close

    def submit(self, tasks: Sequence[Task]) -> Sequence[Submitted]:
        self.submitted += [task.name for task in tasks]
        doomed, self.deaths = tasks[: self.deaths], max(0, self.deaths - len(tasks))
        return self.engine.submit([*(Task(each.name, kill_itself) for each in doomed), *tasks[len(doomed) :]])


def assert_same_rows(one: Path, other: Path) -> None:
    found, expected = (gather_rows(bank_of_file(path).rows) for path in (one, other))
    assert found[:3] == expected[:3]
    assert found.features.numpy().tobytes() == expected.features.numpy().tobytes()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    draw_photos(tmp_path / "images", 11)
    (tmp_path / "images" / "003.png").write_bytes(b"broken")
    return tmp_path / "images"


@pytest.mark.slow
def test_local_processes_give_the_rows_of_one_and_a_killed_one_is_replaced(
    photos_run: Path, images: Path, tmp_path: Path
) -> None:
    how: dict[str, Any] = {"data": str(images), "batch": 2, "workers": 0}
    embed(photos_run, out=tmp_path / "one.parquet", device="cpu", **how)
    engine, seen = Murderous(LocalEngine([Place("cpu"), Place("cpu")]), deaths=1), list[tuple[int, int]]()
    made = embed_on(engine, photos_run, out=tmp_path / "e", parts=3, progress=lambda *at: seen.append(at), **how)
    assert_same_rows(tmp_path / "e", tmp_path / "one.parquet")
    assert (made.images, made.features, list(made.unreadable)) == (10, 128, ["003.png"])
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert sorted(engine.submitted) == sorted([*(f"part {i} of 3" for i in range(3)), "part 0 of 3"])

    engine = Murderous(LocalEngine([Place("cpu")]), deaths=2)
    with pytest.raises(UserError, match=r"part 0 of 1: .* twice; the same command continues"):
        embed_on(engine, photos_run, out=tmp_path / "lost", parts=1, **how)


@pytest.mark.slow
def test_jobs_of_submitit_give_the_rows_of_one(
    photos_run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """submitit's own local executor stands for Slurm: a process a job, with its files."""
    submitit = pytest.importorskip("submitit")
    from engines.test_slurm import LocalQueue

    from dualtemp.engines import slurm

    monkeypatch.setattr(slurm, "LOOK", 0.0)
    executor = submitit.LocalExecutor(tmp_path / "jobs")
    executor.update_parameters(timeout_min=600)

    class Known(slurm.SlurmEngine):
        def submit(self, tasks: Sequence[Task]) -> Any:
            submitted = super().submit(tasks)
            self.queue.processes |= {one.job.job_id: one.job._process for one in submitted}  # pyright: ignore
            return submitted

    engine = Known(executor, Place("cpu", 1), at_once=10)
    engine.queue = LocalQueue()
    how: dict[str, Any] = {"data": str(images), "batch": 2, "workers": 0}
    embed(photos_run, out=tmp_path / "one.parquet", device="cpu", **how)
    embed_on(engine, photos_run, out=tmp_path / "e", parts=2, **how)
    assert_same_rows(tmp_path / "e", tmp_path / "one.parquet")


@pytest.mark.slow
def test_the_command_fills_a_folder_and_continues_one_that_was_begun(
    commands: Commands, photos_run: Path, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "e"
    embed(photos_run, data=images, out=tmp_path / "one.parquet", device="cpu", batch=2, workers=0)
    embed(photos_run, data=images, out=out, device="cpu", batch=2, workers=0, share="1/3")
    begun = (out / "part-00001-of-00003.parquet").stat().st_mtime_ns
    words = ("embed", photos_run, "--data", images, "--out", out, "--batch", 2, "--device", "cpu", "--workers", 0)
    ended = commands.run(*words, "--on", "local", "--jobs", 2)
    assert ended.code == 0, ended.err
    assert_same_rows(out, tmp_path / "one.parquet")
    assert (out / "part-00001-of-00003.parquet").stat().st_mtime_ns == begun
    refused = commands.run(*words, "--on", "local", "--parts", 4)
    assert (refused.code, "divided into 3 parts already" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--out", "x.parquet", "--on", "local"), "fills a folder"),
        (("--out", "x", "--on", "slurm"), "give --parts"),
        (("--out", "x", "--on", "local", "--share", "0/2"), "one of the two"),
        (("--out", "x", "--on", "local", "--slurm", "time=3"), "for --on slurm alone"),
        (("--out", "x", "--jobs", "2"), "add --on"),
        (("--out", "x", "--on", "local", "--parts", "0"), "from 1 to"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(
    words: tuple[str, ...], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["embed", "run", *words]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
