"""`dualtemp analyze`: table, JSON, figure; and mistakes in one line."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_photos import draw_photos

import dualtemp
from dualtemp.analysis.penalty import penalty_entropy, redrawn_similarity
from dualtemp.analysis.trained_run import open_trained_run
from dualtemp.cli import main
from dualtemp.errors import UserError

RunOf = Callable[[str], Path]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["analyze", *words, "--json", "--device", "cpu"]) == 0
    return json.loads(capsys.readouterr().out)


def test_entropy_and_similarity_are_the_papers_measurements(run_of: RunOf, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_of("simco")
    found = as_json(capsys, str(path), "entropy", "--taus", "0.1,1", "--sizes", "8", "64", "999")
    assert found["values"] == penalty_entropy(open_trained_run(path), [0.1, 1.0], [8, 64, 999])
    assert found["values"]["1"]["999"] is None
    assert (found["method"], found["anchors"], found["step"], found["keys_are"]) == (
        "simco",
        32,
        4,
        "made of the images",
    )
    found = as_json(capsys, str(path), "similarity")
    assert found["values"] == redrawn_similarity(open_trained_run(path), [0.1, 1.0], [16, 64])


def test_the_table_has_a_row_a_temperature_and_says_how_to_read_it(
    run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(run_of("moco")), "entropy", "--taus", ".2", "--sizes", "16", "96", "97"]) == 0
    told = capsys.readouterr().out
    value = penalty_entropy(open_trained_run(run_of("moco")), [0.2], [16])["0.2"]["16"]
    row = next(line.split() for line in told.splitlines() if line.startswith("0.2"))
    assert row[1] == f"{value:.6f}"
    assert row[3] == "-"  # 97 keys are not there
    assert "- for 97 keys: the dictionary has 96 keys." in told
    assert "3.4657 = log 32" in told
    assert "the run's dictionary" in told


def test_similarity_says_that_it_needs_two_draws(run_of: RunOf, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(run_of("moco")), "similarity", "--taus", ".2", "--sizes", "48", "49"]) == 0
    told = capsys.readouterr().out
    assert "- for 49 keys: the dictionary has 96 keys; similarity needs two disjoint draws." in told


@pytest.mark.slow
def test_unreadable_files_do_not_change_the_entropy_of_equal_weights(
    tmp_path: Path, train_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = draw_photos(tmp_path / "some", 60)
    run = train_run(tmp_path / "run", data=str(tmp_path / "some"), image_size=16, subset=None, batch=8)
    for path in paths[::6]:
        path.write_bytes(b"no image")
    found = as_json(capsys, str(run), "entropy", "--taus", "inf")
    assert found["anchors"] == 8
    assert found["sizes"] == [2, 4, 8, 16, 32]
    assert found["values"]["inf"]["2"] == pytest.approx(math.log(8), abs=1e-6)
    for path in paths[5:]:
        path.write_bytes(b"no image")
    found = as_json(capsys, str(run), "entropy", "--taus", "inf", "--sizes", "2", "60")
    assert found["keys"] <= 4
    assert found["anchors"] <= 4  # fewer than a batch are left
    assert found["values"]["inf"]["2"] == pytest.approx(math.log(found["anchors"]), abs=1e-6)


def test_the_dictionary_and_neighbours_are_told(run_of: RunOf, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(run_of("simco")), "dictionary"]) == 0
    told = capsys.readouterr().out
    rows = [line.split()[:2] for line in told.splitlines() if line[:1] in "01"]
    assert rows == [["0.1", "16"], ["0.1", "64"], ["1", "16"], ["1", "64"]]  # at the run's two temperatures
    assert main(["analyze", str(run_of("simco")), "neighbours", "--images", "100"]) == 0
    told = capsys.readouterr().out
    assert "100 test images" in told
    assert "9.1%" in told  # 9 of the 99 others, by chance


def test_other_data_and_other_images_can_be_looked_at(
    run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "other.npz", images=np.random.default_rng(1).integers(0, 256, (90, 9, 9, 1), dtype=np.uint8))
    words = (str(run_of("moco")), "--data", str(tmp_path / "other.npz"))
    found = as_json(capsys, words[0], "entropy", *words[1:])
    assert found["keys_are"] == "made of the images"
    assert found["sizes"] == [16, 64]
    found = as_json(capsys, words[0], "neighbours", *words[1:])
    assert found["chance"] is None
    assert found["confused"] == []
    assert set(found["agreement"].values()) == {None}


@pytest.mark.parametrize("what", ["entropy", "similarity", "dictionary", "neighbours"])
def test_the_figure_draws_every_value_and_stands_alone(
    run_of: RunOf, tmp_path: Path, open_page: Any, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    out = tmp_path / "new" / f"{what}.svg"
    assert main(["analyze", str(run_of("simco")), what, "--out", str(out), "--json", "--device", "cpu"]) == 0
    found = json.loads(capsys.readouterr().out)
    view, told = open_page(out)
    if what == "neighbours":
        expected = 2 * len(found["agreement"])
    else:
        expected = len(found["taus"]) * len(found["sizes"]) * (2 if what == "dictionary" else 1)
    assert view.locator("svg circle").count() == expected
    assert view.locator("parsererror").count() == 0
    assert told == []


def test_json_can_go_to_a_file(run_of: RunOf, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, str(run_of("simco")), "neighbours", "--images", "20", "--out", str(tmp_path / "x.JSON"))
    assert json.loads((tmp_path / "x.JSON").read_text()) == found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("RUN", "entropi"), "did you mean 'entropy'?"),
        (("RUN",), "ANALYSIS"),
        (("RUN", "entropy", "--taus", "0"), "a number from 1e-06 on, or inf"),
        (("RUN", "entropy", "--taus", "1e-7"), "a number from 1e-06 on, or inf"),
        (("RUN", "entropy", "--taus", "nan"), "a number from 1e-06 on, or inf"),
        (("RUN", "entropy", "--sizes", "16,x"), "whole numbers from 1 on"),
        (("RUN", "entropy", "--sizes", "0"), "whole numbers from 1 on"),
        (("RUN", "entropy", "--taus", ","), "a number from 1e-06 on, or inf"),
        (("RUN", "entropy", "--sizes", ","), "whole numbers from 1 on"),
        (("RUN", "entropy", "--sizes", "100000"), "the dictionary has 128 keys; give at most 128"),
        (("RUN", "similarity", "--sizes", "65"), "two disjoint draws; give at most 64"),
        (("RUN", "dictionary", "--sizes", "129"), "give at most 128"),
        (("RUN", "neighbours", "--taus", "1"), "--taus does not apply to neighbours"),
        (("RUN", "entropy", "--images", "9"), "--images does not apply to entropy"),
        (("RUN", "neighbours", "--images", "1"), "at least 2"),
        (("RUN", "entropy", "--out", "figure.png"), "ends with .svg or .json"),
        (("RUN", "entropy", "--out", "config.svg/x.svg"), "cannot be written"),
        (("RUN", "entropy", "--data", "no-such-set"), "no-such-set"),
        (("RUN", "entropy", "--device", "tpu9"), "no device is called"),
        (("nowhere", "entropy"), "is not a run"),
        (("SUPERVISED", "dictionary"), "has no anchors"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    run_of: RunOf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.svg").touch()
    runs = {"RUN": "simco", "SUPERVISED": "supervised"}
    assert main(["analyze", *(str(run_of(runs[word])) if word in runs else word for word in words)]) == 2
    told = capsys.readouterr().err
    assert expected in told
    assert told.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["config.svg"]


@pytest.mark.parametrize(
    ("what", "values", "expected"),
    [
        ("entropy", {"taus": [1.0, 0.0]}, "--taus: a number from 1e-06 on, or inf, is expected, got 0.0"),
        ("dictionary", {"taus": [math.nan]}, "got nan"),
        ("similarity", {"sizes": [16, 0]}, "--sizes: whole numbers from 1 on are expected, got 0"),
        ("neighbours", {"images": 0}, "--images must be at least 2, got 0"),
        ("neighbours", {"taus": [1.0]}, "--taus does not apply to neighbours"),
        ("entropy", {"images": 9}, "--images does not apply to entropy"),
    ],
)
def test_a_mistake_from_python_is_the_line_of_the_command(what: str, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        dualtemp.analyze("nowhere", what, **values)


def test_help_needs_no_torch() -> None:
    program = "import sys; from dualtemp.cli import main; main(['analyze', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "fig:abg_similarity" in done.stdout
    assert not {"torch", "numpy", "PIL"} & set(done.stdout.split())
