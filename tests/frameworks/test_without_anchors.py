"""Runs of frameworks that have no anchors: nothing of them is measured, told or misread, and all else works."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dualtemp
from dualtemp.cli import main
from dualtemp.runs.folder import RunFolder

METHODS = ("vicreg", "barlow_twins")
TINY: dict[str, Any] = {"data": "digits", "backbone": "resnet_mini", "subset": 320, "batch": 64, "epochs": 2, "knn": 5}
HOW: dict[str, Any] = {"device": "cpu", "threads": 1, "quiet": True}
OF_ANCHORS = {"entropy", "W_mean", "W_spread", "hardest_tenth"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for method in METHODS:
        dualtemp.train(**TINY, **HOW, method=method, projector_width=32, out=folder / method)
    dualtemp.train(**TINY, **HOW, method="simco", out=folder / "simco")
    return {method: folder / method for method in (*METHODS, "simco")}


@pytest.mark.parametrize("method", METHODS)
def test_no_weight_is_measured_and_the_page_says_nothing_of_one(method: str, runs: dict[str, Path]) -> None:
    history = RunFolder(runs[method]).history()
    assert len(history) == 2
    assert not any(OF_ANCHORS & set(line) for line in history)
    page, beside = ((runs[name] / "report.html").read_text() for name in (method, "simco"))
    for word in ("entropy of r_+", "W_mean", "hardest tenth"):
        assert word not in page
    assert "entropy of r_+" in beside, "as it would be said"
    assert "projector_width" in page


def test_they_stand_on_one_page_beside_a_run_that_has_anchors(
    runs: dict[str, Path], tmp_path: Path, open_page: Callable[..., Any]
) -> None:
    out = tmp_path / "compare.html"
    assert main(["report", *map(str, runs.values()), "--out", str(out)]) == 0
    view, told = open_page(out)
    assert told == []
    assert view.locator("#verdicts .said").count() == 3
    assert view.locator("#chart-loss polyline").count() == 3


@pytest.mark.parametrize("method", METHODS)
def test_what_needs_anchors_refuses_them_in_one_line(
    method: str, runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["explore"], ["analyze"]):
        words = [*command, str(runs[method]), *(["entropy"] if command == ["analyze"] else [])]
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"is a run of {method}, which has no anchors" in said
        assert "vicreg" not in said.partition("give a run of")[2]


def test_the_encoder_is_exported_and_embeds(runs: dict[str, Path], tmp_path: Path) -> None:
    written = tmp_path / "export"
    assert main(["export", str(runs["vicreg"]), "--out", str(written), "--format", "safetensors"]) == 0
    assert {"model.safetensors", "README.md"} <= set(os.listdir(written))
    assert "vicreg" in (written / "README.md").read_text()


def test_a_run_goes_on_with_its_settings(runs: dict[str, Path]) -> None:
    path = runs["barlow_twins"]
    assert dualtemp.resume(path, epochs=3, **HOW)["epoch"] == 3
    line = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["epoch"] == 3
    assert RunFolder(path).settings().get("projector_width") == 32
