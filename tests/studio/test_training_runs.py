"""Runs that the page starts: on chosen images, stopped and resumed, and alive when the studio is not."""

import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from command_processes import PATIENCE, Commands, until
from made_runs import made_run
from served_studio import ServedStudio, serve
from started_studio import Started

from dualtemp.runs.folder import RunFolder
from dualtemp.runs.status import status_of
from dualtemp.studio import training_runs
from dualtemp.studio.events import News
from dualtemp.studio.training_runs import TrainingRuns

SMALL = {"method": "simco", "init": "none", "batch": 8, "image_size": 24}


def end_of(studio: ServedStudio, name: str) -> str:
    """Wait until a run's process has ended; returns its status."""

    def status() -> str:
        return next((row["status"] for row in studio.ask("/api/runs").json()["runs"] if row["name"] == name), "")

    studio.until(lambda: status() not in ("", "starting", "running"))
    return status()


def test_a_value_that_is_not_finite_is_left_out_of_the_curves(studio: ServedStudio) -> None:
    made_run(studio.workspace.places.runs / "mine", [{"loss": 3.0}, {"loss": float("nan")}, {"loss": 2.0}])
    answer = studio.ask("/api/runs/history?run=mine")
    assert answer.code == 200
    (curve,) = (each for each in answer.json()["curves"] if each["key"] == "loss")
    assert curve["points"] == [[1, 3.0], [3, 2.0]]


@pytest.mark.slow
def test_a_run_learns_from_the_chosen_images_and_the_map_is_seen_by_it(
    photos_run: Path, photos: Path, tmp_path: Path
) -> None:
    with serve(photos_run, tmp_path) as studio:
        images = studio.workspace.shown.images
        studio.ask("/api/label", {"ids": list(range(0, 20, 2)), "label": "even"})
        studio.ask("/api/label", {"ids": list(range(1, 20, 2)), "label": "odd"})
        answer = studio.ask("/api/train", {**SMALL, "ids": list(range(20)), "epochs": 1})
        assert answer.code == 200, answer.body
        name = answer.json()["run"]
        assert end_of(studio, name) == "done"
        folder = RunFolder.open(tmp_path / "runs" / name)
        chosen = Path(folder.settings().data)
        linked = {path.resolve() for path in chosen.rglob("*.*") if path.is_symlink()}
        assert linked == {(photos / each).resolve() for each in images.names[:20]}
        assert {path.parent.name for path in chosen.rglob("*.*")} == {"even", "odd"}
        curves = studio.ask(f"/api/runs/history?run={name}").json()["curves"]
        assert any(curve["key"] == "loss" and len(curve["points"]) == 1 for curve in curves)
        before = studio.workspace.space
        assert studio.finish_job(studio.ask("/api/runs/see", {"run": name}))["state"] == "done"
        after = studio.workspace.space
        assert after is not before
        assert len(after.features) == len(images)
        assert not np.allclose(after.features[:, :4], before.features[:, :4])
        page = studio.ask(f"/api/runs/page?run={name}")
        assert page.code == 200
        assert page.headers["content-security-policy"].startswith("sandbox allow-scripts;")
        assert studio.ask("/api/runs/resume", {"run": name, "epochs": 2}).code == 200
        studio.until(lambda: len(folder.history()) == 2)
        assert end_of(studio, name) == "done"


@pytest.mark.slow
def test_a_run_outlives_the_studio_and_the_next_one_stops_and_resumes_it(
    commands: Commands, photos_run: Path, tmp_path: Path
) -> None:
    def start() -> Started:
        return Started(commands, photos_run, "--labels", tmp_path / "l.csv", "--runs", tmp_path / "r")

    first = start()
    name = first.ask("/api/train", {**SMALL, "epochs": 100_000}).json()["run"]
    run = RunFolder(tmp_path / "r" / name)
    assert until(first.command, lambda: len(run.history()) > 1)
    first.command.send(signal.SIGKILL)
    first.command.wait()
    so_far = len(run.history())
    second = start()
    assert until(second.command, lambda: len(run.history()) > so_far), "it goes on by itself"
    assert second.ask("/api/runs/resume", {"run": name}).code == 400, "it is running"
    assert second.ask("/api/runs/stop", {"run": name}).code == 200
    assert until(second.command, lambda: status_of(run).word == "interrupted")
    stopped = len(run.history())
    assert second.ask("/api/runs/resume", {"run": name}).code == 200
    assert until(second.command, lambda: len(run.history()) > stopped)
    assert second.ask("/api/runs/stop", {"run": name}).code == 200
    assert until(second.command, lambda: status_of(run).word == "interrupted")
    second.command.send(signal.SIGINT)
    assert second.command.wait(PATIENCE).code == 0


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_run_is_on_the_studios_device_and_takes_no_library_from_the_images(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "yaml.py").write_text("raise SystemExit('a file of the images was executed')")
    monkeypatch.chdir(tmp_path)
    runs = TrainingRuns(tmp_path / "runs", News(), device)
    runs.train(runs.new_name("mine"), "no such data", {"epochs": 1})
    (name,) = runs._children
    assert runs._children[name].wait(PATIENCE) == 2
    assert "no such data" in runs.log(name)
    command = json.loads((tmp_path / "runs" / ".studio" / f"{name}.json").read_text())["command"]
    assert command[-2:] == ["--device", device]


def test_looks_at_runs_that_do_not_move_read_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_run(tmp_path / "runs" / "mine", [{"loss": 3.0}])
    news, read, told = News(), [], []
    monkeypatch.setattr(training_runs, "EVERY", 0.01)
    monkeypatch.setattr(training_runs, "REST", 0.1)
    monkeypatch.setattr(training_runs, "describe_run", lambda path, name: read.append(name) or {"name": name})
    monkeypatch.setattr(news, "publish", lambda kind, **what: told.append(kind))
    runs = TrainingRuns(tmp_path / "runs", news)
    runs.start_watching()

    def after(change: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(told) < change:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.3)
        assert told == ["runs"] * change
        assert len(read) == change

    after(1)
    with RunFolder(tmp_path / "runs" / "mine").metrics.open("a") as file:
        file.write('{"epoch": 2, "loss": 2.0}\n')
    after(2)
    runs.close()


def test_images_that_are_not_in_the_data_are_not_trained_on(studio: ServedStudio) -> None:
    images = studio.workspace.shown.images
    images.numbers[3] = -1
    answer = studio.ask("/api/train", {**SMALL, "ids": list(range(20))})
    assert answer.code == 400
    assert "1 of these images" in answer.json()["error"]


def test_only_runs_that_exist_and_methods_that_exist_are_named(studio: ServedStudio, tmp_path: Path) -> None:
    for body in ({"run": "../labels"}, {"run": "no such run"}, {"run": str(tmp_path)}):
        for action in ("stop", "resume", "see"):
            assert studio.ask(f"/api/runs/{action}", body).code == 400
    answer = studio.ask("/api/train", {**SMALL, "method": "--out"})
    assert answer.code == 400
    assert "no method is called" in answer.json()["error"]
    assert studio.ask("/api/train", {**SMALL, "ids": [0, 1]}).code == 400
    assert not (tmp_path / "runs").exists()
