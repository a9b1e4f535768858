import base64
import csv
import html
import json
import os
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_processes import Commands
from paper.smoke import digits, tiny_job
from scipy import stats

from dualtemp.cli import main
from dualtemp.grids.grid_request import GridRequest
from dualtemp.grids.results import Job, Results
from dualtemp.grids.tables import make_jobs
from dualtemp.grids.worker import perform

GRID = """
title: Two temperatures & more
data: digits
fixed: {backbone: resnet_mini, epochs: 1, batch: 64, subset: 128}
rows:
  SimCo: {method: simco}
  SimMoCo: {method: simmoco}
columns: {tau_beta: [0.1, 1]}
seeds: 4
claims:
  two: {says: two temperatures beat one, shown_by: [{each: row, beats: [1, 0.1]}]}
"""
MEANS = {("SimCo", "0.1"): 40.0, ("SimCo", "1"): 45.0, ("SimMoCo", "0.1"): 41.0, ("SimMoCo", "1"): 41.2}


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """A grid with a result in every cell and seed but one, which failed; nothing was trained."""
    file = tmp_path / "grid.yaml"
    file.write_text(GRID)
    request = GridRequest.parse(file, None, [], None)
    plan, results = request.make_plan(), Results(tmp_path / "results")
    cells = {cell.run: place for place, cell in plan.cells["grid"].items()}
    for (run, seed), job in make_jobs(plan, request.seeds, {"digits": digits()}).items():
        place = cells[run]
        if place == ("SimMoCo", "1") and seed == 4:
            results.write(job, {"status": "failed", "reason": "the loss is not finite"})
            continue
        value = value_of(place, seed)
        results.write(job, {"status": "done", "metrics": {"probe_top1": value, "knn_top1": 1.0}, "seconds": 60.0})
    return file


def value_of(place: tuple[str, str], seed: int) -> float:
    own = np.random.default_rng([seed, *map(ord, "".join(place))]).normal(0, 0.3)
    return float(MEANS[place] + seed + own)  # a seed moves all cells alike: paired differences are far narrower


def test_every_output_has_the_means_and_the_paired_tests(
    grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [tmp_path / "out" / f"grid{ending}" for ending in (".html", ".csv", ".tex", ".svg", ".pdf")]
    words = [word for path in out for word in ("--out", str(path))]
    assert main(["grid", str(grid), "--no-run", *words]) == 0
    said = capsys.readouterr().out
    assert "15 of 16 runs" not in said  # a failed run is a result
    assert "16 of 16 runs" in said
    a = [value_of(("SimCo", "1"), seed) for seed in (1, 2, 3, 4)]
    b = [value_of(("SimCo", "0.1"), seed) for seed in (1, 2, 3, 4)]
    half = stats.t.ppf(0.975, 3) * stats.sem(a)
    cell = f"{np.mean(a):.2f} ± {half:.2f}"
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    difference = f"{np.mean(a) - np.mean(b):+.2f} [{low:+.2f}, {high:+.2f}]"
    assert cell in said
    assert f"SimCo: 1 - 0.1  {difference}" in said
    assert "clear" in next(line for line in said.splitlines() if line.startswith("SimCo: 1 - 0.1"))
    assert re.search(r"two: two temperatures beat one: \w+", said)
    html, table, tex, svg, pdf = out
    page = html.read_text()
    assert cell in page
    assert "Two temperatures &amp; more" in page
    assert "the loss is not finite" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    with open(table, newline="") as file:
        rows = {(row["row"], row["tau_beta"]): row for row in csv.DictReader(file)}
    assert float(rows["SimCo", "1"]["mean"]) == pytest.approx(np.mean(a))
    assert [float(rows["SimCo", "1"][f"seed {seed}"]) for seed in (1, 2, 3, 4)] == pytest.approx(a)
    assert rows["SimMoCo", "1"]["seed 4"] == "failed"
    with open(tmp_path / "out" / "grid-comparisons.csv", newline="") as file:
        (compared,) = (r for r in csv.DictReader(file) if (r["where"], r["first"]) == ("SimCo", "1"))
    assert float(compared["p"]) == pytest.approx(float(stats.ttest_rel(a, b).pvalue))
    assert cell.replace("±", r"$\pm$") in tex.read_text()
    assert r"Two temperatures & more" in tex.read_text().splitlines()[0]  # in a comment
    dots = [child for child in ET.fromstring(svg.read_text()) if child.tag.endswith("circle")]
    assert len(dots) == 15 + 4 + 2  # seeds, means, legend
    assert pdf.read_bytes().startswith(b"%PDF-1.4")


def test_a_measure_that_is_no_percentage_has_the_digits_that_show_a_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entropies near log N differ in the third digit; a run whose entropy is not a number is told of as failed."""
    file = tmp_path / "grid.yaml"
    file.write_text(GRID.replace("seeds: 4", "seeds: 3\nmetric: entropy"))
    folder = tmp_path / "results [old]"
    request = GridRequest.parse(file, None, [], folder)
    plan = request.make_plan()
    cells = {cell.run: place for place, cell in plan.cells["grid"].items()}
    for (run, seed), job in make_jobs(plan, request.seeds, {"digits": digits()}).items():
        value = 4.15 + seed**2 * 1e-4 + 2e-3 * (cells[run][1] == "1")
        value = float("nan") if cells[run] == ("SimMoCo", "1") and seed == 3 else value
        Results(folder).write(job, {"status": "done", "metrics": {"entropy": value}, "seconds": 60.0})
    out = tmp_path / "grid.html"
    assert main(["grid", str(file), "--no-run", "--results", str(folder), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    half = stats.t.ppf(0.975, 2) * stats.sem([1e-4, 4e-4, 9e-4])
    assert f"{4.15 + 14e-4 / 3:.4f} ± {half:.4f}" in said
    assert "SimCo: 1 - 0.1  +0.0020" in said
    assert str(folder) in said
    page = out.read_text()
    assert "entropy of its last epoch is nan" in page
    assert "2 seeds</span>" in page


def test_the_page_has_the_figure_as_a_browser_draws_it_alone(grid: Path, tmp_path: Path, open_page: Any) -> None:
    """The page's own style, which is larger, and in the dark light on white, does not reach the figure."""
    pages = [tmp_path / f"grid{ending}" for ending in (".html", ".svg")]
    assert main(["grid", str(grid), "--no-run", *(word for path in pages for word in ("--out", str(path)))]) == 0
    view, told = open_page(pages[0], scheme="dark")
    seen = view.locator(".figure img")
    assert base64.b64decode(seen.get_attribute("src").partition(",")[2]) == pages[1].read_bytes()
    assert seen.evaluate("each => each.complete && each.naturalWidth > 300")
    assert told == []


@pytest.mark.slow
def test_listed_commands_make_the_missing_runs(
    grid: Path, tmp_path: Path, commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = sorted((tmp_path / "results").glob("*-s2.json"))[0]
    gone.unlink()
    assert main(["grid", str(grid), "--list"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    ended = commands.run(*shlex.split(line)[1:])
    assert ended.code == 0, ended.err
    assert gone.exists()
    assert main(["grid", str(grid), "--list"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["grid", str(grid), "--list", "--retry"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_runs_that_are_the_same_on_these_images_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "grid.yaml").write_text("data: digits\ncolumns: {subset: [64, 5000, 6000]}\nseeds: [1, 2]")
    made: list[str] = []

    def pretend(jobs: list[Job], *_: object) -> int:
        made.extend(job.name for job in jobs)
        return 0

    monkeypatch.setattr("dualtemp.grids.run_missing.run_missing", pretend)
    assert main(["grid", str(tmp_path / "grid.yaml")]) == 0
    told = capsys.readouterr().out
    assert len(set(made)) == len(made) == 4  # both large subsets are the whole set
    assert told.startswith("4 runs of 4\n")
    assert "0 of 4 runs, in " in told
    assert main(["grid", str(tmp_path / "grid.yaml"), "--cell", made[0]]) == 0
    assert capsys.readouterr().out == "1 run\n"


def test_latex_shows_names_as_they_are_and_takes_none_for_an_argument(grid: Path, tmp_path: Path) -> None:
    grid.write_text(GRID.replace("SimCo:", '"[a|b]":').replace("SimMoCo:", '"* <c> &":'))
    assert main(["grid", str(grid), "--no-run", "--out", str(tmp_path / "grid.tex")]) == 0
    lines = (tmp_path / "grid.tex").read_text().splitlines()
    assert any(line.startswith(r"{}[a\textbar{}b] & ") for line in lines)
    assert any(line.startswith(r"{}* \textless{}c\textgreater{} \& & ") for line in lines)
    assert not any(line.lstrip().startswith(("[", "*")) for line in lines)  # after \\, which takes both as arguments


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of files that are no text")
def test_every_output_is_written_of_a_grid_whose_file_name_is_no_text(grid: Path, tmp_path: Path) -> None:
    named = grid.rename(tmp_path / os.fsdecode(b"caf\xe9.yaml"))
    named.write_text(GRID.replace("title: Two temperatures & more", ""))
    out = [tmp_path / "out" / f"grid{ending}" for ending in (".html", ".csv", ".tex", ".svg", ".pdf")]
    words = [word for path in out for word in ("--out", str(path))]
    assert main(["grid", str(named), "--no-run", *words]) == 0
    for path in out[:1] + out[2:4]:
        assert r"caf\udce9" in path.read_text()


def test_commands_to_repeat_retry_what_is_to_be_retried_and_load_the_plugins(
    grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALTEMP_PLUGINS", "")
    plugin = tmp_path / "a plugin.py"
    plugin.write_text("")
    assert main(["grid", str(grid), "--plugin", str(plugin), "--list", "--retry"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    words = shlex.split(line)
    assert words[words.index("--plugin") + 1] == str(plugin)
    page = tmp_path / "grid.html"
    assert main(["grid", str(grid), "--plugin", str(plugin), "--no-run", "--out", str(page)]) == 0
    assert f"--plugin {shlex.quote(str(plugin))}</code>" in html.unescape(page.read_text())
    capsys.readouterr()
    assert main([*words[1:], "--list"]) == 0  # finds the failed run, which it would make
    assert capsys.readouterr().out == f"{line}\n"
    assert main(["grid", str(grid), "--cell", words[words.index("--cell") + 1]]) == 1
    assert capsys.readouterr().out == "nothing is missing, but 1 run failed before: --retry makes failed runs again\n"
    finished = sorted((tmp_path / "results").glob("*-s2.json"))[0]
    assert main(["grid", str(grid), "--cell", finished.stem]) == 0
    assert capsys.readouterr().out == "nothing is missing\n"
    finished.unlink()
    assert main(["grid", str(grid), "--list"]) == 0
    assert "--retry" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.yaml"], "cannot be read"),
        (["grid.yaml", "--out", "x.png"], "ends with .html"),
        (["grid.yaml", "--seeds", "0"], "--seeds"),
        (["grid.yaml", "--slurm", "time=3"], "is for --on slurm alone"),
        (["grid.yaml", "--data", "a", "--data", "b"], "give one set for all"),
        (["grid.yaml", "--cell", "x"], "there is no cell"),
        (["grid.yaml", "--cell", "x", "--no-run"], "leave --no-run out"),
        (["grid.yaml", "--list", "--out", "x.html"], "--list writes no table"),
        (["grid.yaml", "--cell", "x", "--out", "x.html"], "--cell writes no table"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "grid.yaml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    assert main(["grid", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["grid.yaml"]


@pytest.mark.parametrize(
    "row", ["{method: simco, init: START}", "{method: distil, teacher: START, lr: 0.1}"], ids=["init", "teacher"]
)
def test_results_of_other_weights_at_the_same_path_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str
) -> None:
    first, grid = tiny_job(), tmp_path / "grid.yaml"
    perform(first, Results(tmp_path / "first"), "cpu", keep=True)
    run = Results(tmp_path / "first").run_folder(first)
    fixed = "{backbone: resnet_mini, epochs: 1, batch: 64, subset: 128}"
    grid.write_text(f"data: digits\nfixed: {fixed}\nrows:\n  start: {row.replace('START', str(run))}\nseeds: 1\n")
    request, results = GridRequest.parse(grid, None, [], None), Results(tmp_path / "results")
    (job,) = make_jobs(request.make_plan(), request.seeds, {"digits": digits()}).values()
    file, words = results.path / f"{job.name}.json", ["grid", str(grid), "--no-run"]
    perform(job, results, "cpu")
    kept = file.read_bytes()
    assert main(words) == 0, "the same weights"
    weights = run / "backbone.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    capsys.readouterr()
    assert main(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"{file.name} in the results folder came from other weights than {run} holds now" in line
    assert file.read_bytes() == kept
    file.unlink()
    perform(job, results, "cpu")
    assert main(words) == 0, "computed again"
    assert json.loads(file.read_text())["content"] != json.loads(kept)["content"]
    run.rename(tmp_path / "elsewhere")
    assert main(words) == 0, "what is there is shown without the weights"
