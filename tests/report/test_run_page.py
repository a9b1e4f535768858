"""The page of a run in a real browser: of epochs that are known, and of a run that was trained."""

import json
import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_runs import FULL, epochs, made_run

from dualtemp.cli import main
from dualtemp.config import settings
from dualtemp.data import open_source
from dualtemp.errors import UserError
from dualtemp.file_lock import locked
from dualtemp.report.run_page import describe_settings, write_run_page
from dualtemp.runs.metrics import measures
from dualtemp.runs.record import read_run

Open = Callable[..., tuple[Any, list[str]]]
CHARTS = ["loss", "probe_top1", "lr", "entropy", "hardest_tenth", "W_mean", "W_spread"]
CHARTS += ["alignment", "uniformity", "spread", "effective_rank"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = made_run(tmp_path_factory.mktemp("runs") / "a <run>", FULL, tau_beta=0.5, lr=0.12)
    knn = {"name": "kNN", "data": "validation", "images": 10000, "labels": 50000, "seconds": 3.0}
    rows = [
        {**knn, "encoder": "trained", "top1": 41.5, "top5": None},
        {**knn, "encoder": "raw <pixels>", "top1": 33.25, "top5": 80.0},
    ]
    (path / "evaluation.json").write_text(json.dumps({"step": 30, "made": "2026-01-02T03:04:05", "measured": rows}))
    write_run_page(path)
    return path


def test_every_curve_is_there_with_its_sentence_without_an_error_or_the_network(open_page: Open, run: Path) -> None:
    view, told = open_page(run / "report.html")
    assert told == []
    assert view.locator("h1").inner_text() == "a <run>"
    assert [card.get_attribute("id") for card in view.locator("figure").all()] == [f"chart-{key}" for key in CHARTS]
    for key in CHARTS:
        card = view.locator(f"#chart-{key}")
        box = card.locator("svg").bounding_box()
        assert box["width"] > 250
        assert box["height"] > 120
        assert len(card.locator("figcaption").inner_text()) > 40
    assert view.locator("#chart-probe_top1 polyline").count() == 2
    assert "chance" in view.locator("#chart-probe_top1 svg").text_content()
    assert "log 64" in view.locator("#chart-entropy svg").text_content()
    words = view.locator("#chart-probe_top1 figcaption").inner_text()
    for key in ("probe_top1", "knn_top1", "start_knn_top1"):
        assert (measures()[key].says in words) == (key in FULL[0])  # nothing is said of a line that is not there


def test_the_pointer_and_the_arrow_keys_read_values_off(open_page: Open, run: Path) -> None:
    view, told = open_page(run / "report.html")
    card = view.locator("#chart-probe_top1")
    chart, readout = card.locator("svg"), card.locator(".readout")
    assert readout.inner_text().strip() == ""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    view.mouse.move(box["x"] + box["width"] * 0.97, box["y"] + 40)
    assert readout.inner_text() == "epoch 4: Linear probe 43.21 %, kNN 41.50 %"
    assert chart.locator(".cross circle").count() == 2
    view.mouse.move(box["x"] + box["width"] * 0.16, box["y"] + 40)
    assert readout.inner_text() == "epoch 1: Linear probe 20.00 %, kNN 30.00 %"
    view.mouse.move(0, 0)
    assert readout.inner_text().strip() == ""
    chart.focus()
    for key in ("ArrowLeft", "ArrowLeft"):
        chart.press(key)
    assert readout.inner_text() == "epoch 3: Linear probe 36.00 %, kNN 38.00 %"
    assert card.get_by_role("status").inner_text() == readout.inner_text()  # also for those who listen
    assert told == []


def test_the_verdict_comes_first_with_its_reason(open_page: Open, run: Path) -> None:
    view, _ = open_page(run / "report.html")
    said = view.locator("#verdict")
    assert "still improving" in said.locator("h2").inner_text()
    assert "7.2 points" in said.inner_text()
    command = shlex.split(said.locator("code").first.inner_text())
    assert command == ["dualtemp", "resume", str(run), "--epochs", "8"]
    assert said.bounding_box()["y"] < 300
    assert view.locator("#status").inner_text() == "done"
    figures = view.locator(".figures").inner_text()
    for words in ("4 of 4", "43.21 %", "85.00 %", "41.50 %", "500", "40 s"):
        assert words in figures


def test_settings_that_differ_come_first_and_the_rest_can_be_opened(open_page: Open, run: Path) -> None:
    view, _ = open_page(run / "report.html")
    rows = [row.locator("td").all_inner_texts()[:3] for row in view.locator("#settings > .scroll tbody tr").all()]
    assert ["tau_beta", "0.5", "1"] in rows
    assert ["lr", "0.12", "0.03"] in rows
    assert {row[0] for row in rows} == {"data", "method", "tau_beta", "epochs", "batch", "lr"}
    details = view.locator("#settings details")
    assert not details.locator("table").is_visible()
    details.locator("summary").click()
    assert "weight_decay" in details.inner_text()


def test_levels_to_compare_with_are_those_of_the_run(run: Path, tmp_path: Path) -> None:
    def level(key: str, path: Path) -> float | None:
        found = measures()[key].reference(read_run(path))
        return None if found is None else found.value

    assert level("entropy", run) == pytest.approx(math.log(64))
    assert level("hardest_tenth", run) == pytest.approx(7 / 64)  # the hardest 7 of 64 anchors, if all weigh the same
    assert level("probe_top1", run) == pytest.approx(10)
    uneven = made_run(tmp_path / "uneven", FULL)
    environment = json.loads((uneven / "environment.json").read_text())
    environment["test"]["commonest"] = 6200  # of 10,000
    (uneven / "environment.json").write_text(json.dumps(environment))
    assert level("probe_top1", uneven) == pytest.approx(62)
    assert level("knn_top1", made_run(tmp_path / "run", FULL, data="/some/photos")) is None


def test_what_was_evaluated_is_a_table_that_says_if_it_is_old(open_page: Open, run: Path) -> None:
    view, _ = open_page(run / "report.html")
    assert view.locator("#evaluated thead th").all_inner_texts() == ["measure", "labels", "trained", "raw <pixels>"]
    cells = view.locator("#evaluated tbody td").all_inner_texts()
    assert cells[:3] == ["kNN", "50,000", "41.50 %"]
    assert cells[3].split() == ["33.25", "%", "✓", "+8.2"]  # 0.7 points is a standard error
    assert "10,000 validation images" in view.locator("#evaluated .note").inner_text()
    assert "before the run's last step" in view.locator("#evaluated h2").inner_text()  # step 30 of 40
    assert view.locator("#classes").count() == 0  # of an older file


def evaluated_run(path: Path, step: int, rows: list[dict[str, Any]]) -> Path:
    run = made_run(path, FULL)
    (run / "evaluation.json").write_text(json.dumps({"step": step, "made": "2026", "measured": rows}))
    return run


KNN = {"name": "kNN", "data": "validation", "images": 300, "labels": 320, "top5": None}


def test_an_evaluation_no_better_than_raw_pixels_heads_the_page_while_it_is_of_the_last_step(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {**KNN, "encoder": "trained", "top1": 80.0},
        {**KNN, "encoder": "untrained", "top1": 60.0},
        {**KNN, "encoder": "raw pixels", "top1": 90.0},
        {**KNN, "encoder": "raw pixels", "top1": 1.0, "data": "elsewhere"},
        {**KNN, "encoder": "trained", "top1": "much"},
    ]
    for step, told in ((40, True), (30, False)):
        run = evaluated_run(tmp_path / str(step), step, rows)
        assert ("has learned little: no better than raw pixels" in write_run_page(run).read_text()) == told


def test_answers_are_shown_class_by_class_with_what_is_taken_for_what(open_page: Open, tmp_path: Path) -> None:
    by_class = [{"class": "a <b>", "images": 200, "right": 150}, {"class": "c", "images": 100, "right": 90}]
    confused = [{"class": "a <b>", "as": "c", "images": 50}, {"class": "c", "as": "a <b>", "images": 10}]
    trained = {**KNN, "encoder": "trained", "top1": 80.0, "by_class": by_class, "confused": confused}
    view, told = open_page(write_run_page(evaluated_run(tmp_path / "run", 40, [trained])))
    assert told == []
    bars = [" ".join(bar.split()) for bar in view.locator(".class-bars li").all_inner_texts()]
    assert bars == ["a <b> 75.0 % 150 of 200", "c 90.0 % 90 of 100"]
    assert "66.7 %" in view.locator("#evaluated .note").last.inner_text()  # always naming a <b>
    cells = view.locator(".matrix tbody td").all_inner_texts()
    assert cells == ["150", "50", "10", "90"]
    widths = view.locator(".class-bars .meter").evaluate_all(
        "all => all.map(m => m.firstChild.offsetWidth / m.offsetWidth)"
    )
    assert widths == pytest.approx([0.75, 0.9], abs=0.01)


def test_many_classes_are_the_hardest_and_the_most_confused(open_page: Open, tmp_path: Path) -> None:
    by_class = [{"class": f"class {i}", "images": 10, "right": i % 11} for i in range(100)]
    confused = [{"class": f"class {i}", "as": "class 0", "images": 10 - i % 11} for i in range(100) if i % 11 < 10]
    trained = {**KNN, "encoder": "trained", "top1": 50.0, "by_class": by_class, "confused": confused}
    view, _ = open_page(write_run_page(evaluated_run(tmp_path / "run", 40, [trained])), 380)
    assert view.locator(".class-bars li").count() == 20
    assert view.locator(".matrix").count() == 0
    assert view.locator("[aria-label='most confused'] tbody tr").count() == 20
    assert view.evaluate("document.documentElement.scrollWidth") <= 380


def test_the_contents_lead_to_every_part_and_files_of_the_run_are_linked(open_page: Open, run: Path) -> None:
    view, _ = open_page(run / "report.html")
    targets = [link.get_attribute("href") for link in view.locator("nav.contents a").all()]
    assert targets[0] == "#pictures"
    assert all(view.locator(target).count() == 1 for target in targets)
    parts = view.locator("section[id], p#pictures").evaluate_all("all => all.map(part => '#' + part.id)")
    assert parts == targets
    for name in ("config.yaml", "metrics.jsonl", "evaluation.json"):
        link = view.locator("#files a", has_text=name)
        assert Path(link.evaluate("a => decodeURIComponent(new URL(a.href).pathname)")) == run / name


def test_links_of_a_page_elsewhere_lead_to_the_run(open_page: Open, run: Path, tmp_path: Path) -> None:
    view, _ = open_page(write_run_page(run, tmp_path / "x y" / "page.html"))
    link = view.locator("#files a", has_text="report.html")
    assert Path(link.evaluate("a => decodeURIComponent(new URL(a.href).pathname)")) == run / "report.html"


def test_charts_on_which_nothing_moves_are_a_line_of_values(open_page: Open, tmp_path: Path) -> None:
    still = [{**line, "entropy": 4.1588, "hardest_tenth": 0.11 + 1e-6 * i} for i, line in enumerate(FULL)]
    view, _ = open_page(write_run_page(made_run(tmp_path / "run", still)))
    drawn = [card.get_attribute("id") for card in view.locator("figure").all()]
    assert drawn == [f"chart-{key}" for key in CHARTS if key not in ("entropy", "hardest_tenth")]
    words = view.locator("#hardness .still").inner_text()
    assert "Entropy of r_+ 4.1588" in words
    assert "Share of the hardest tenth 0.11" in words


def test_a_top_5_is_shown_of_more_than_five_classes_alone(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", FULL)
    assert "probe, top-5" in write_run_page(run).read_text()
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "images": {"classes": ["x", "y"]}}))
    assert "probe, top-5" not in write_run_page(run).read_text()


def test_words_say_what_the_figures_are(open_page: Open, tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", FULL, batch=32)
    environment = json.loads((run / "environment.json").read_text())
    images = {"channels": 3, "size": 32, "mean": [0.4914, 0.4822, 0.4465], "std": [0.247, 0.2435, 0.2616]}
    (run / "environment.json").write_text(json.dumps({**environment, "images": images}))
    view, _ = open_page(write_run_page(run))
    assert "4 of 32 = 0.125" in view.locator("#chart-hardest_tenth figcaption").inner_text()
    data = view.locator("#data").inner_text()
    assert "normalized with" in data
    assert "mean 0.4914, 0.4822, 0.4465 and deviation 0.247, 0.2435, 0.2616" in data


def test_charts_are_of_one_size_and_no_column_is_out_of_sight(open_page: Open, run: Path) -> None:
    view, _ = open_page(run / "report.html", 1280)
    widths = [chart.bounding_box()["width"] for chart in view.locator("svg.epochs").all()]
    assert max(widths) / min(widths) < 1.05
    view, _ = open_page(run / "report.html", 380)
    for cell in view.locator("#settings > .scroll td.wide").all():
        box = cell.bounding_box()
        assert box["x"] + box["width"] <= 380
    assert min(value.bounding_box()["width"] for value in view.locator("#data dd").all()) > 300


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (380, "light"), (1400, "dark")])
def test_nothing_runs_over_the_edge_and_text_can_be_read(open_page: Open, run: Path, width: int, scheme: str) -> None:
    view, told = open_page(run / "report.html", width, scheme)
    assert told == []
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    colours = view.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    ink, ground = (sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in colours)
    assert abs(ink - ground) > 180
    assert (ground < 60) == (scheme == "dark")


def test_a_page_reloads_itself_only_while_the_run_goes_on(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", FULL[:2])
    refresh = '<meta http-equiv="refresh" content="30">'
    with locked(run / ".lock"):
        text = write_run_page(run).read_text()
        assert refresh in text
        assert "running, epoch 2 of 4" in text
    text = write_run_page(run).read_text()
    assert refresh not in text
    assert "interrupted at epoch 2 of 4" in text
    finished = made_run(tmp_path / "finished", FULL)
    with locked(finished / ".lock"):  # the last epoch's page
        assert refresh not in write_run_page(finished).read_text()
    (run / "trouble.txt").write_text("the disk is <full>")
    assert "failed: the disk is &lt;full&gt;" in write_run_page(run).read_text()


@pytest.mark.parametrize(
    "history",
    [
        [],
        epochs(loss=[3.0]),
        epochs(loss=[math.nan, 2.0], spread=[math.inf, 0.5], probe_top1=["a lot", 3.0]),
        epochs(loss=[1.0] * 900, probe_top1=[None] * 899 + [40.0]),
    ],
    ids=["no epoch", "one epoch", "numbers that are none", "many epochs"],
)
def test_any_history_makes_a_page(open_page: Open, tmp_path: Path, history: list[dict[str, Any]]) -> None:
    run = made_run(tmp_path / "run", history, epochs=1000)
    view, told = open_page(write_run_page(run))
    assert told == []
    assert view.locator("#verdict h2").is_visible()
    assert view.locator("figure.chart-card").count() <= 3
    assert (tmp_path / "run" / "report.html").stat().st_size < 200_000


def test_files_of_others_that_are_damaged_are_left_out(open_page: Open, tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", FULL)
    (run / "evaluation.json").write_text("{")
    (run / "pictures.json").write_text("[]")
    (run / "environment.json").write_text("gone")
    view, told = open_page(write_run_page(run))
    assert told == []
    assert view.locator("#evaluated").count() == 0
    assert view.locator("figure.chart-card").count() == len(CHARTS)


def test_a_damaged_run_has_no_page_and_one_line_says_why(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", FULL)
    (run / "metrics.jsonl").write_text("{\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged"):
        write_run_page(run)
    assert not (run / "report.html").exists()


def test_the_defaults_of_a_setting_are_those_of_the_framework() -> None:
    chosen = settings({"data": "x", "method": "moco", "tau_alpha": 0.2, "tau_beta": "tied", "image_size": 32})
    changed = {name: (value, usual) for name, value, usual, _ in describe_settings(chosen)[0]}
    assert changed["tau_alpha"] == ("0.2", "0.1")
    assert "tau_beta" not in changed
    assert "image_size" not in changed
    same = {name for name, *_ in describe_settings(chosen)[1]}
    assert "both_views" not in same | changed.keys()  # a setting of other frameworks


def test_the_command_takes_pictures_of_a_trained_run_and_writes_its_page(
    open_page: Open, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = "--data digits --backbone resnet_mini --batch 64 --epochs 1 --subset 128 --knn-images 128 --quiet --no-page"
    assert main(["train", *words.split(), "--out", str(run)]) == 0
    assert not (run / "report.html").exists()
    assert main(["report", str(run), "--no-pictures"]) == 0
    assert capsys.readouterr().out.strip() == str(run / "report.html")
    assert not (run / "pictures.json").exists()
    assert main(["report", str(run), "--out", str(tmp_path / "new" / "page.html")]) == 0
    assert (run / "pictures.json").exists()
    view, told = open_page(tmp_path / "new" / "page.html")
    assert told == []
    assert "too early to tell" in view.locator("#verdict").inner_text()
    assert view.locator("section#pictures").is_visible()
    assert view.locator("figure.chart-card").count() == 0  # one epoch is no curve
    assert "Loss" in view.locator("#learning .still").inner_text()
    environment = json.loads((run / "environment.json").read_text())
    counts = open_source("digits").test.labels.bincount()  # pyright: ignore[reportOptionalMemberAccess]
    assert environment["test"]["commonest"] == int(counts.max())
    assert "10: 0, 1, 2" in view.locator("#data").inner_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere is not a run"),
        (["run", "--out", "run"], "is a folder: name a file"),
        (["run", "--out", "x.pdf"], "ends with .html, .csv, .tex"),
        (["run", "run", "--out", "x.csv"], "given twice"),
        (["run", "--no-pictures", "--out", "run/config.yaml/x.html"], "cannot be written"),
        (["run", "run", "--out", "x.html"], "given twice"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made_run(tmp_path / "run", FULL)
    before = sorted(tmp_path.rglob("*"))
    assert main(["report", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_pictures_that_cannot_be_taken_do_not_cost_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_run(tmp_path / "run", FULL)  # has no checkpoint
    assert main(["report", str(run), "--device", "cpu"]) == 0
    assert "no new pictures" in capsys.readouterr().err
    assert (run / "report.html").is_file()
