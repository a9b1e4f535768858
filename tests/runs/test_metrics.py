"""The table of measures is complete: what a run writes is in it, and what it promises to show is shown."""

import json
from importlib import import_module
from inspect import getsource
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

import dualtemp
from dualtemp.exporting.model_card import CardFacts, _of_training
from dualtemp.report.compare_page import compare_page
from dualtemp.report.run_page import write_run_page
from dualtemp.report.runs_list import ORDERS, runs_below
from dualtemp.report.runs_table import csv_table, latex_table
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.measure import GROUPS
from dualtemp.runs.metrics import accuracies, measures
from dualtemp.runs.record import read_run
from dualtemp.training.observers.display import summary
from dualtemp.training.observers.observer import scalars


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run that writes all there is to write: it begins from another one."""
    folder = tmp_path_factory.mktemp("runs")
    words: dict[str, Any] = {"backbone": "resnet_mini", "batch": 64, "subset": 192, "knn": "auto", "quiet": True}
    dualtemp.train(data="digits", **words, epochs=1, lr=1e-9, page=False, out=folder / "start")
    words |= {"init": str(folder / "start"), "stop_below_start": True, "stop_by_judge": True}
    dualtemp.train(data="digits", **words, epochs=2, page=False, out=folder / "run")
    return folder / "run"


def test_every_key_that_a_run_writes_has_an_entry_and_every_entry_is_written(run: Path) -> None:
    assert {key for line in RunFolder(run).history() for key in line} == set(measures())


def test_entries_say_what_they_mean_and_name_who_computes_them() -> None:
    for key, entry in measures().items():
        assert entry.key == key
        assert entry.title
        assert entry.says.endswith(".")
        assert entry.group in ("", *GROUPS)
        assert f'"{key}"' in getsource(import_module(entry.computed_by)), f"{entry.computed_by} does not know {key}"


def test_runs_are_judged_by_the_probe_first_and_then_by_knn() -> None:
    assert [each.key for each in accuracies()] == ["probe_top1", "knn_top1"]


def test_what_claims_to_be_on_the_run_page_is_there(run: Path) -> None:
    page = write_run_page(run).read_text()
    for entry in measures().values():
        if entry.tile:
            assert f"<dt>{entry.name or entry.title}</dt>" in page
        if entry.group:
            assert entry.title.removesuffix(", top-1") in page
        if f'id="chart-{entry.key}"' in page:
            assert str(escape(entry.says)) in page


def test_what_claims_to_be_compared_is_on_the_compare_page_and_in_both_tables(run: Path) -> None:
    runs = [read_run(run)]
    page, latex = compare_page(runs, run / "compare.html"), latex_table(runs).replace("\\", "")
    columns = csv_table(runs).splitlines()[0].split(",")
    for key, entry in measures().items():
        assert (f'id="figure-{key}"' in page) == (key in columns) == entry.compared
        assert not entry.compared or f"\n{entry.name or entry.title} & " in latex
    rated = [entry.key for entry in measures().values() if entry.rated]
    assert [column for column in columns if column in measures()][: len(rated)] == rated


def test_terminal_logs_list_and_model_card_show_what_the_table_says(run: Path) -> None:
    line: dict[str, Any] = RunFolder(run).history()[-1]
    text = summary(line)
    row = runs_below([run])[0]
    card = _of_training(CardFacts(RunFolder(run), RunFolder(run).settings(), (), {}, {}, {}))
    for key, entry in measures().items():
        assert entry.terminal is None or entry.terminal.form.format(line[key]) in text
        assert (key in scalars(line)) == entry.logged
        if entry.column:
            assert row[entry.column.lower()] == line[key]
            assert ORDERS[entry.column.lower()]
    assert [cells[0] for cells in card] == [entry.card for entry in measures().values() if entry.card]
    assert [cells[4] for cells in card] == [f"{line['probe_top1']:.2f}", f"{line['knn_top1']:.2f}"]


def test_an_alarm_is_said_where_it_is_true_and_never_dropped() -> None:
    line = {"loss": 1.0, "probe_top1": 5.0, "knn_top1": 5.0, "collapsed": True}
    assert "COLLAPSED" in summary(line, 10)
    assert "kNN" not in summary(line, 10)
    assert "COLLAPSED" not in summary({**line, "collapsed": False})


def test_a_key_that_nobody_declared_gets_a_chart_under_its_own_name(run: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    before = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps({**line, "novel": line["epoch"] ** 2}) + "\n" for line in lines)
    )
    try:
        page = write_run_page(run, tmp_path / "page.html").read_text()
    finally:
        (run / "metrics.jsonl").write_text(before)
    assert 'id="chart-novel"' in page
    assert scalars({"epoch": 1, "novel": 4}) == {"novel": 4.0}
