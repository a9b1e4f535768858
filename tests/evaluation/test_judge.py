"""The label-free judge: its forecast by hand, its calibration made anew, and real runs judged."""

import json
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from drawn_photos import draw_photos, drawn_photo
from scipy.stats import norm

import dualtemp
from dualtemp.cli import main
from dualtemp.data import open_source
from dualtemp.errors import UserError
from dualtemp.evaluation.judge import MEASURES, calibration, chance_better, forecast, read_judged
from dualtemp.report.run_page import write_run_page

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_forecast_is_the_formula_and_says_how_vague_it_is() -> None:
    made = calibration()
    found = forecast({"cluster_learnability": 0.8, "intrinsic_dimension": 12.0})
    score = made["level"] + made["weights"][0] * 0.8 + made["weights"][1] * math.log(12.0)
    assert found.knn == pytest.approx(100 / (1 + math.exp(-score)))
    wide = math.hypot(made["level_sd"], made["residual_sd"])
    assert found.low == pytest.approx(100 / (1 + math.exp(wide - score)))
    assert found.high - found.low > 50, "without classes nobody knows the level"


def test_of_two_encoders_the_more_learnable_one_is_better_with_the_chance_of_a_normal_difference() -> None:
    one, other = (forecast({"cluster_learnability": c, "intrinsic_dimension": d}) for c, d in ((0.85, 8), (0.65, 20)))
    expected = norm.cdf((one.score - other.score) / (math.sqrt(2) * calibration()["residual_sd"]))
    assert chance_better(one, other) == pytest.approx(expected)
    assert chance_better(one, other) > 0.8
    assert chance_better(one, one) == 0.5
    assert chance_better(other, one) == pytest.approx(1 - chance_better(one, other))


def test_the_calibration_in_the_package_is_what_its_points_give(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import judge_forecast  # pyright: ignore

    monkeypatch.setattr(sys, "argv", ["", str(BENCHMARKS / "judge_points.json"), "--out", str(tmp_path / "made.json")])
    judge_forecast.main()
    made = json.loads((tmp_path / "made.json").read_text())
    kept = calibration()
    assert set(made) == set(kept)
    assert made["measures"] == list(MEASURES)
    assert made["weights"] == pytest.approx(kept["weights"], rel=1e-6)
    for name in ("level", "level_sd", "residual_sd", "error_points", "encoders"):
        assert made[name] == pytest.approx(kept[name], rel=1e-6)


def test_runs_are_judged_without_labels_and_the_page_shows_it(
    digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = shutil.copytree(digits_run, tmp_path / "one")
    other = shutil.copytree(digits_run, tmp_path / "other")
    options = ["--device", "cpu", "--workers", "0"]
    assert main(["judge", str(one), str(other), *options, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["chance_first_is_best"] == pytest.approx(0.5), "the same encoder twice"
    assert {each["over"] for each in said["runs"]} == {"untrained"}
    assert list(read_judged(one)) == [said["runs"][0]["step"]]
    assert "kNN forecast" in write_run_page(one).read_text()
    assert main(["judge", str(one), *options]) == 0
    out = capsys.readouterr().out
    assert "untrained" in out
    assert "take" not in out


def on_other_data(run: Path, out: Path, **values: object) -> Path:
    config = shutil.copytree(run, out) / "config.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), **values}))
    return out


def test_only_forecasts_on_the_same_images_are_compared(
    digits_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = open_source("digits").train.source.tensor
    assert digits is not None
    pixels = digits[:, 0].numpy()
    for name, first in (("own", 0), ("copy", 0), ("other", 100)):
        np.savez(tmp_path / f"{name}.npz", images=pixels[first : first + 100])
    runs = {
        name: on_other_data(digits_run, tmp_path / name, data=str(tmp_path / f"{data}.npz"), subset=subset)
        for name, data, subset in (("a", "own", None), ("b", "own", 60), ("c", "copy", None), ("d", "other", None))
    }
    for one, other, same in (("a", "b", False), ("a", "c", True), ("a", "d", False)):
        assert main(["judge", str(runs[one]), str(runs[other]), "--device", "cpu", "--workers", "0"]) == 0
        told = capsys.readouterr()
        assert ("take " in told.out) == same, (one, other)
        assert ("measured on different images" in told.err) == (not same)


def test_files_are_the_same_images_in_any_folder_but_not_by_their_names_alone(photos_run: Path, tmp_path: Path) -> None:
    draw_photos(tmp_path / "own", 40)
    shutil.copytree(tmp_path / "own", tmp_path / "copy")
    shutil.copytree(tmp_path / "own", tmp_path / "other")
    for path in (tmp_path / "other").iterdir():
        drawn_photo(1000 + int(path.stem)).save(path)
    runs = [
        on_other_data(photos_run, tmp_path / f"on {name}", data=str(tmp_path / name))
        for name in ("own", "copy", "other")
    ]
    found = {each.path.name: each.images for each in dualtemp.judge(runs, device="cpu", workers=0)}
    assert found["on own"] == found["on copy"] != found["on other"]


def test_a_run_that_was_better_before_is_told_to_stop(digits_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(digits_run, tmp_path / "run")
    earlier = {"cluster_learnability": 0.99, "intrinsic_dimension": 1.5}
    (run / "judge.json").write_text(json.dumps({"1": {"measures": earlier}}))
    (found,) = dualtemp.judge([run], device="cpu", workers=0)
    assert (found.best_step, found.advice.startswith("stop: it was better at step 1 ")) == (1, True)
    assert len(read_judged(run)) == 2
    (run / "judge.json").write_text("{ damaged")
    assert dualtemp.judge([run], device="cpu", workers=0)[0].best_step == found.step


def test_too_few_images_and_what_is_no_run_are_one_line(photos_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 32 are needed"):
        dualtemp.judge([photos_run], device="cpu", workers=0)
    with pytest.raises(UserError, match="is not a run"):
        dualtemp.judge([tmp_path], device="cpu", workers=0)
