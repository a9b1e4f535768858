"""`stop_by_judge`: a run looks back without labels, stops if it was clearly better before, and keeps that encoder."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import dualtemp
from dualtemp.cli import main
from dualtemp.errors import UserError
from dualtemp.evaluation.judge import JUDGE_FILE, read_judged
from dualtemp.report.runs_list import better_by_forecast, runs_below
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.status import status_of

QUIET = {"device": "cpu", "quiet": True, "page": False, "threads": 1}
SMALL = {"backbone": "resnet_mini", "batch": 32, "init": "none", **QUIET}
BETTER = {"measures": {"cluster_learnability": 0.99, "intrinsic_dimension": 1.2}}


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images without labels."""
    path = tmp_path_factory.mktemp("flat") / "flat.npz"
    np.savez(path, images=np.random.default_rng(0).integers(0, 256, (96, 8, 8), dtype=np.uint8))
    return path


@pytest.fixture(scope="module")
def judged_run(flat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("judged") / "run"
    dualtemp.train(data=str(flat), out=path, epochs=2, stop_by_judge=True, **SMALL)
    return path


def test_a_run_without_labels_is_judged_after_each_epoch_and_trains_as_it_would(
    judged_run: Path, flat: Path, tmp_path: Path
) -> None:
    history = RunFolder(judged_run).history()
    judged = read_judged(judged_run)
    assert list(judged) == [line["step"] for line in history]
    assert [line["judged_knn"] for line in history] == [pytest.approx(entry["knn"]) for entry in judged.values()]
    assert history[0]["judged_past"] == 0
    assert [line["stopped"] for line in history] == [False, False]
    found = dualtemp.judge([shutil.copytree(judged_run, tmp_path / "copy")], device="cpu", workers=0)[0]
    assert found.found.knn == pytest.approx(history[-1]["judged_knn"], abs=1e-3), "as the command judges it"
    dualtemp.train(data=str(flat), out=tmp_path / "plain", epochs=2, **SMALL)
    backbones = [(run / "backbone.safetensors").read_bytes() for run in (judged_run, tmp_path / "plain")]
    assert backbones[0] == backbones[1]


def test_clearly_better_before_it_stops_keeps_that_encoder_and_says_so(
    judged_run: Path, flat: Path, tmp_path: Path
) -> None:
    run, whole = (shutil.copytree(judged_run, tmp_path / name) for name in ("run", "whole"))
    before = (run / "backbone.safetensors").read_bytes()
    (run / JUDGE_FILE).write_text(json.dumps({"1": BETTER, "999": BETTER}))  # what comes later counts for nothing
    dualtemp.resume(run, epochs=4, **QUIET)
    last = RunFolder(run).history()[-1]
    assert (last["epoch"], last["stopped"], last["judged_best_step"]) == (3, True, 1)
    assert last["judged_past"] > 0.8
    assert (run / "backbone.safetensors").read_bytes() == before, "the encoder of the measurement before"
    assert "the judge rated an earlier encoder higher" in status_of(RunFolder(run)).reason
    assert dualtemp.resume(run, **QUIET)["epoch"] == 3, "it stays as it is"
    dualtemp.resume(whole, epochs=4, **QUIET)
    assert RunFolder(whole).history()[-1]["epoch"] == 4


def test_an_encoder_that_nobody_has_judged_does_not_replace_one_that_is_kept(flat: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    dualtemp.train(data=str(flat), out=run, epochs=2, evaluate_every=2, stop_by_judge=True, **SMALL)
    before = (run / "backbone.safetensors").read_bytes()
    (run / JUDGE_FILE).write_text(json.dumps({"1": BETTER}))
    dualtemp.resume(run, epochs=6, **QUIET)
    history = RunFolder(run).history()
    assert [("judged_past" in line, line["stopped"]) for line in history] == [
        (False, False),
        (True, False),
        (False, False),
        (True, True),
    ]
    assert (run / "backbone.safetensors").read_bytes() == before, "that of epoch 2, the measurement before"


def test_the_list_of_runs_has_the_forecast_which_to_take_and_how_sure(
    judged_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "other", "unjudged"):
        shutil.copytree(judged_run, tmp_path / name)
    step = max(read_judged(judged_run))
    (tmp_path / "one" / JUDGE_FILE).write_text(json.dumps({str(step): BETTER}))
    (tmp_path / "unjudged" / JUDGE_FILE).unlink()
    rows = {row["name"]: row for row in runs_below([tmp_path])}
    assert rows["unjudged"]["forecast"] is None
    assert rows["one"]["forecast_low"] < rows["one"]["forecast"] < rows["one"]["forecast_high"]
    (line,) = better_by_forecast(list(rows.values()))
    assert "of 2 judged runs" in line
    assert "one, better than other with chance" in line
    assert main(["runs", str(tmp_path), "--sort", "forecast"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "forecast" in lines[0]
    assert [each.split()[0] for each in lines[1:4]] == ["one", "other", "unjudged"]
    assert lines[4].split() == line.split()


def test_too_few_images_and_no_labels_are_one_line(tmp_path: Path, flat: Path) -> None:
    np.savez(tmp_path / "few.npz", images=np.zeros((20, 8, 8), np.uint8) + np.arange(20, dtype=np.uint8)[:, None, None])
    with pytest.raises(UserError, match="stop_by_judge needs 32 images or more"):
        dualtemp.train(
            data=str(tmp_path / "few.npz"), out=tmp_path / "run", stop_by_judge=True, **{**SMALL, "batch": 4}
        )
    assert not (tmp_path / "run").exists()
