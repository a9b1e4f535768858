"""A run that stops itself keeps an earlier encoder: everything that is said of the weights is said of that one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_runs import made_run

from dualtemp.evaluation.evaluate import online
from dualtemp.exporting import export as export_module
from dualtemp.exporting.model_card import CardFacts, _figures, _limits, _origin
from dualtemp.report.compare_page import final_figures
from dualtemp.report.runs_list import describe_run
from dualtemp.runs.folder import RunFolder
from dualtemp.runs.kept_encoder import kept_history
from dualtemp.runs.record import read_run

FINE = {"held_out_gained": 3, "held_out_lost": 1, "judged_past": 0.0, "stopped": False}
FALLEN = {**FINE, "held_out_gained": 0, "held_out_lost": 60}
PAST = {**FINE, "judged_past": 0.9}
UNMEASURED = {"stopped": False}
BY_START = {"init": "imagenet", "stop_below_start": True}


@pytest.mark.parametrize(("epochs", "stopped"), [(4, True), (2, False)])
def test_export_card_and_online_figures_are_of_the_epoch_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int, stopped: bool
) -> None:
    fine = {"probe_top1": 80.0, "knn_top1": 81.0, "collapsed": False, **FINE}
    fallen = {"probe_top1": 40.0, "knn_top1": 41.0, "collapsed": True, **FALLEN, "stopped": stopped}
    run = RunFolder(made_run(tmp_path / "run", [fine, fallen], epochs=epochs, **BY_START))
    monkeypatch.setattr(export_module, "_digest", lambda *_: "weights")
    encoder: Any = SimpleNamespace(backbone=None, recipe={"num_features": 8})
    manifest = export_module._facts(run, run.settings(), encoder, {})
    assert (manifest["epoch"], manifest["step"]) == (1, 10)
    facts = CardFacts(run, run.settings(), (), encoder.recipe, {}, manifest)
    assert f"after epoch 1 of {epochs}" in _origin(facts)
    assert "81.00" in _figures(facts)
    assert "41.00" not in _figures(facts)
    assert "collapsed" not in _limits(facts)
    images = SimpleNamespace(readable_count=lambda _: 100)
    found: Any = SimpleNamespace(test=images, train=images, classes=10, name="validation")
    assert sorted(row["top1"] for row in online(run, found, {"knn", "probe"})) == [80.0, 81.0]


@pytest.mark.parametrize(
    ("lines", "values", "kept"),
    [
        ([FINE, FALLEN], {}, 2),  # it was not asked to stop
        ([FINE, FINE], BY_START, 2),
        ([FALLEN], BY_START, 0),  # the start is kept
        ([FINE, UNMEASURED, FALLEN], BY_START, 1),
        ([FINE, UNMEASURED], BY_START, 1),
        ([FALLEN, FINE], BY_START, 2),
        ([FINE, PAST], BY_START, 2),
        ([FINE, PAST], {"stop_by_judge": True}, 1),
        ([UNMEASURED, PAST], {"stop_by_judge": True}, 1),  # from scratch: the first encoder is written in any case
        ([UNMEASURED, PAST], {"stop_by_judge": True, "init": "imagenet"}, 0),
        ([{}, {}, PAST], {"stop_by_judge": True, "init": "imagenet"}, 2),  # asked only since the third epoch
    ],
)
def test_the_kept_encoder_is_the_last_that_training_wrote(
    tmp_path: Path, lines: list[dict[str, Any]], values: dict[str, Any], kept: int
) -> None:
    run = RunFolder(made_run(tmp_path / "run", lines, **values))
    assert [line["epoch"] for line in kept_history(run.history(), run.settings())] == list(range(1, kept + 1))


def test_the_card_says_that_a_run_which_only_fell_kept_its_start(tmp_path: Path) -> None:
    run = RunFolder(made_run(tmp_path / "run", [{**FALLEN, "knn_top1": 41.0}], **BY_START))
    facts = CardFacts(run, run.settings(), (), {}, {}, {"dualtemp": "1", "epoch": None})
    assert "these are its weights before the first epoch" in _origin(facts)
    assert "Nothing was measured" in _figures(facts)


@pytest.mark.parametrize(
    ("lines", "probe", "knn"),
    [
        ([{"probe_top1": 80.0, "knn_top1": 81.0, **FINE}], 80.0, 81.0),
        ([], None, 70.0),  # the start is kept
    ],
)
def test_lists_and_comparisons_show_what_the_kept_encoder_reached_and_how_far_training_went(
    tmp_path: Path, lines: list[dict[str, Any]], probe: float | None, knn: float
) -> None:
    fallen = {"probe_top1": 40.0, "knn_top1": 41.0, "loss": 0.5, **FALLEN, "stopped": True}
    history = [{"start_knn_top1": 70.0, **line} for line in [*lines, fallen]]
    path = made_run(tmp_path / "run", history, **BY_START)
    row = describe_run(path, "run")
    assert (row["epoch"], row["probe"], row["knn"]) == (len(history), probe, knn)
    figures = {row["key"]: row["cells"][0]["value"] for row in final_figures([read_run(path)])}
    assert (figures.get("probe_top1"), figures["knn_top1"], figures["loss"]) == (probe, knn, 0.5)
