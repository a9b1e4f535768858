"""Runs side by side, in a real browser."""

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import FULL, TEST, epochs, made_run
from scipy import stats

from dualtemp.cli import main
from dualtemp.errors import UserError
from dualtemp.report import compare_page
from dualtemp.report.compare_page import MOST, NONE, distinct_names, final_figures, write_compare_page
from dualtemp.report.run_page import write_run_page
from dualtemp.runs import record

Open = Callable[..., tuple[Any, list[str]]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight runs: the first two of one name, others of other lengths, frameworks and data."""
    folder = tmp_path_factory.mktemp("compared")
    better = [{**line, "probe_top1": line["probe_top1"] + 2} for line in FULL]
    paths = [
        made_run(folder / "x" / "run", FULL, tau_beta=1.0),
        made_run(folder / "y" / "run", better, tau_beta=0.5),
        made_run(folder / "moco", FULL[:2], method="moco"),
        made_run(folder / "long", epochs(loss=[3 - i / 100 for i in range(12)]), epochs=12, method="simsiam"),
        made_run(folder / "photos", [{**line, "probe_top1": 90.0} for line in FULL], data="/some/photos"),
        made_run(folder / "none", []),
        made_run(folder / "seven", FULL, lr=0.07),
        made_run(folder / "eight", FULL, lr=0.08),
    ]
    other = json.loads((paths[4] / "environment.json").read_text()) | {"test": {**TEST, "fingerprint": "other"}}
    (paths[4] / "environment.json").write_text(json.dumps(other))
    return write_compare_page(paths, folder / "out" / "compare.html")


def test_all_runs_are_there_by_names_that_tell_them_apart(open_page: Open, page: Path) -> None:
    view, told = open_page(page)
    assert told == []
    labels = view.locator(".legend.runs label").all_inner_texts()
    assert [label.strip() for label in labels] == ["x/run", "y/run", "moco", "long", "photos", "none", "seven", "eight"]
    assert view.locator("#verdicts .said").count() == 8
    verdicts = view.locator("#verdicts h2").all_inner_texts()
    assert "still improving" in verdicts[0]
    assert "interrupted at epoch 2 of 4" in verdicts[2]
    colours = view.evaluate(
        "[...document.querySelectorAll('.legend.runs .swatch')].map(e => getComputedStyle(e).borderTopColor)"
    )
    assert len(set(colours)) == 8


def test_curves_lie_on_the_same_axes_and_each_can_be_switched_off(open_page: Open, page: Path) -> None:
    view, told = open_page(page)
    loss = view.locator("#chart-loss svg")
    assert loss.locator("polyline").count() == 7  # one run has no epoch yet
    assert view.locator("#chart-knn_top1 polyline").count() == 5 + 1
    ends = [line["points"][-1] for line in json.loads(loss.get_attribute("data-lines"))]
    assert [end[2] for end in ends] == [4, 4, 2, 12, 4, 4, 4]
    assert ends[0][0] < ends[3][0]  # epoch 4 lies left of epoch 12
    box = view.locator(".legend.runs input").nth(1)
    assert view.locator("#chart-loss g[data-run='1']").is_visible()
    box.uncheck()
    assert not view.locator("#chart-loss g[data-run='1']").is_visible()
    chart = view.locator("#chart-knn_top1 svg")
    chart.focus()
    chart.press("ArrowLeft")
    readout = view.locator("#chart-knn_top1 .readout").inner_text()
    assert "x/run 41.50 %" in readout
    assert "y/run" not in readout
    box.check()
    view.locator(".legend.runs input").nth(3).uncheck()  # the longest: nothing is read off beyond the others
    loss.focus()
    loss.press("ArrowLeft")
    assert view.locator("#chart-loss .readout").inner_text().startswith("epoch 4: x/run 3.1, y/run 3.1, ")
    assert view.locator("#chart-loss g[data-run='1']").is_visible()
    assert told == []


def test_what_a_finger_has_touched_on_a_chart_stays_when_it_is_lifted(open_page: Open, page: Path) -> None:
    view, told = open_page(page)
    chart = view.locator("svg.epochs").first
    box = chart.bounding_box()
    place = {"clientX": box["x"] + box["width"] / 2, "clientY": box["y"] + 20}
    readout = view.locator(".chart-card .readout").first
    chart.dispatch_event("pointerdown", {**place, "pointerType": "touch"})
    touched = readout.inner_text()
    assert touched.startswith("epoch ")
    chart.dispatch_event("pointerleave", {**place, "pointerType": "touch"})
    assert readout.inner_text() == touched
    chart.dispatch_event("pointerleave", {**place, "pointerType": "mouse"})
    assert readout.inner_text() != touched
    assert told == []


def test_the_best_of_runs_with_the_same_test_images_is_marked(open_page: Open, page: Path) -> None:
    view, _ = open_page(page)
    cells = view.locator("#figure-probe_top1 td").all_inner_texts()[1:]
    assert cells == ["43.21 %", "★ 45.21 %", "30.00 %", NONE, "90.00 %", NONE, "43.21 %", "43.21 %"]
    assert view.locator("#figure-loss .best").count() == 0
    assert "different images" in view.locator("#figures .note").inner_text()


def test_seeds_are_grouped_and_the_luckiest_is_not_marked_as_the_best(open_page: Open, tmp_path: Path) -> None:
    values = {("a", 1): 40.0, ("a", 2): 44.0, ("a", 3): 45.0, ("b", 1): 43.0, ("b", 2): 43.5}
    paths = [
        made_run(tmp_path / f"{name}{seed}", epochs(probe_top1=[value]), seed=seed, tau_beta={"a": 0.5, "b": 1.0}[name])
        for (name, seed), value in values.items()
    ]
    view, _ = open_page(write_compare_page(paths, tmp_path / "compare.html"))
    assert view.locator(".best").count() == 0
    rows = [row.locator("td").all_inner_texts() for row in view.locator("#seeds tbody tr").all()]
    half = stats.t.ppf(0.975, 2) * stats.sem([40, 44, 45])
    assert rows[0][:4] == ["tau_beta 0.5", "3", "1, 2, 3", f"43.00 % ± {half:.2f}"]
    assert rows[1][:3] == ["tau_beta 1", "2", "1, 2"]
    assert main(["report", *map(str, paths), "--out", str(tmp_path / "runs.tex")]) == 0
    assert "textbf" not in (tmp_path / "runs.tex").read_text()


def test_only_settings_that_differ_are_listed(open_page: Open, page: Path) -> None:
    view, _ = open_page(page)
    rows = {
        cells[0]: cells[1:]
        for row in view.locator("#settings tbody tr").all()
        for cells in [row.locator("td").all_inner_texts()]
    }
    assert rows["tau_beta"] == ["1", "0.5", "tied", NONE, "1", "1", "1", "1"]
    assert rows["method"][2:4] == ["moco", "simsiam"]
    assert rows["epochs"] == ["4", "4", "4", "12", "4", "4", "4", "4"]
    assert "batch" not in rows
    assert "weight_decay" not in rows


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1400, "light")])
def test_nothing_runs_over_the_edge(open_page: Open, page: Path, width: int, scheme: str) -> None:
    view, told = open_page(page, width, scheme)
    assert told == []
    assert view.evaluate("document.documentElement.scrollWidth") <= width


def test_names_take_as_much_of_the_path_as_they_need() -> None:
    paths = [Path("/a/b/run"), Path("/a/c/run"), Path("/d/c/run"), Path("/a/other")]
    assert distinct_names(paths) == ["b/run", "a/c/run", "d/c/run", "other"]
    assert len(set(distinct_names([Path("/run"), Path("/a/run")]))) == 2


def test_the_page_goes_to_the_current_folder_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [str(made_run(tmp_path / name, FULL)) for name in "ab"]
    assert main(["report", *runs]) == 0
    assert capsys.readouterr().out == "compare.html\n"
    assert (tmp_path / "compare.html").is_file()


def test_a_folder_whose_name_is_no_text_is_linked(tmp_path: Path) -> None:
    named = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        run = made_run(named, FULL)
    except OSError:
        pytest.skip("file names must be text here")
    write_run_page(run)
    page = write_compare_page([run, made_run(tmp_path / "b", FULL)], tmp_path / "compare.html").read_text()
    assert 'href="caf%E9/report.html"' in page


def test_more_runs_than_lines_can_be_told_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"at most {MOST}"):
        write_compare_page([tmp_path / str(number) for number in range(MOST + 1)], tmp_path / "x.html")


def test_what_evaluate_measured_stands_beside_its_strongest_rival(open_page: Open, tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name, FULL) for name in ("first", "second", "gone on")]
    probe = {"name": "linear probe", "data": "validation", "images": 1000, "labels": 50, "top5": None}
    for run, step, top1 in zip(runs, (40, 40, 30), (60.0, 50.0, 99.0), strict=True):
        rows = [
            {**probe, "encoder": "trained", "top1": top1},
            {**probe, "encoder": "raw pixels", "top1": 49.0, "pairs": [[int(top1) * 10 - 450, 40]]},
            {**probe, "encoder": "colour histogram", "top1": 45.0},
        ]
        (run / "evaluation.json").write_text(json.dumps({"step": step, "made": "", "measured": rows}))
    write_run_page(runs[0])
    view, told = open_page(write_compare_page(runs, tmp_path / "compare.html"))
    assert told == []
    cells = [" ".join(cell.split()) for cell in view.locator("#evaluated tbody td").all_inner_texts()]
    assert cells == ["linear probe", "★ 60.00 % raw pixels 49.00 % ✓ +11.0", "50.00 % raw pixels 49.00 % ≈ +1.0", NONE]
    (link,) = view.locator("#verdicts a").all()  # the others have no page
    assert link.evaluate("a => new URL(a.href).pathname").endswith("/first/report.html")
    targets = [link.get_attribute("href") for link in view.locator("nav.contents a").all()]
    assert all(view.locator(target).count() == 1 for target in targets)


def test_tables_for_other_programs_have_the_pages_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        made_run(tmp_path / "a_b & 50 %", FULL, tau_beta=0.5),
        made_run(tmp_path / "other, one", [{**line, "probe_top1": 12.25} for line in FULL]),
    ]
    row = {"name": "kNN", "data": "validation", "encoder": "trained", "top1": 41.25, "images": 9, "labels": 9}
    (runs[1] / "evaluation.json").write_text(json.dumps({"step": 40, "made": "", "measured": [row]}))
    assert main(["report", *map(str, runs), "--out", str(tmp_path / "new" / "runs.csv")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "new" / "runs.csv")
    with open(tmp_path / "new" / "runs.csv", newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["run"], second["run"]) == ("a_b & 50 %", "other, one")
    assert (first["tau_beta"], second["tau_beta"]) == ("0.5", "1")
    assert (float(first["probe_top1"]), float(second["probe_top1"])) == (43.21, 12.25)
    assert (first["evaluated kNN"], second["evaluated kNN"]) == ("", "41.25")
    assert main(["report", *map(str, runs), "--out", str(tmp_path / "runs.tex")]) == 0
    text = (tmp_path / "runs.tex").read_text()
    assert r" & a\_b \& 50 \% & other, one \\" in text
    assert r"probe, top-1 & \textbf{43.21 \%} & 12.25 \% \\" in text
    columns = [line.replace(r"\&", "").count("&") for line in text.splitlines() if line.endswith("\\\\")]
    assert set(columns) == {2}
    assert main(["report", str(runs[0]), "--out", str(tmp_path / "one.csv")]) == 0
    assert len((tmp_path / "one.csv").read_text().splitlines()) == 2


def test_a_table_of_many_runs_looks_at_each_run_as_often_as_one_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [record.read_run(made_run(tmp_path / str(n), FULL, lr=0.01 * (n + 1))) for n in range(24)]
    looks: list[record.RunRecord] = []

    def tested_on(run: record.RunRecord) -> str:
        looks.append(run)
        return record.tested_on(run)

    monkeypatch.setattr(compare_page, "tested_on", tested_on)
    final_figures(runs[:6])
    of_six = len(looks)
    final_figures(runs)
    assert len(looks) - of_six == 4 * of_six
