"""The model card: what it says was measured."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import FULL, made_run

from dualtemp.exporting.model_card import CardFacts, _data, _figures, _origin
from dualtemp.runs.folder import RunFolder


def result_row(data: str, top1: float, name: str = "fine-tuning") -> dict[str, Any]:
    """A result as it stands in evaluation.json."""
    return {"name": name, "encoder": "trained", "data": data, "top1": top1, "images": 100, "labels": 800}


def test_the_card_of_a_fine_tuned_network_has_no_figures_of_others(tmp_path: Path) -> None:
    run = RunFolder(made_run(tmp_path / "run", FULL))
    rows = [result_row("validation", 60.0), result_row("other", 97.0), result_row("validation", 50.0, "linear probe")]
    rows.append(result_row("validation/", 98.0))  # a folder of that name
    (run.path / "evaluation.json").write_text(json.dumps({"step": 40, "made": "today", "measured": rows}))
    tuned = _figures(CardFacts(run, run.settings(), (), {}, {}, {"classifier": {"learned_by": "fine-tuning"}}))
    assert "60.00" in tuned
    assert not any(figure in tuned for figure in ("97.00", "98.00", "50.00", "43.21"))
    plain = _figures(CardFacts(run, run.settings(), (), {}, {}, {}))
    assert all(figure in plain for figure in ("60.00", "97.00", "98.00", "50.00", "43.21"))


@pytest.mark.parametrize(
    ("word", "origin", "shown"),
    [
        ("/home/me/secret/start", "/home/me/secret/start", "It began from start (content"),
        ("secret/start.pth", "secret/start.pth", "It began from start.pth (content"),
        ("imagenet", "timm timm/tf_efficientnet_lite0.in1k", "It began from timm timm/tf_efficientnet_lite0.in1k (con"),
    ],
)
def test_the_card_names_only_the_last_part_of_a_starts_path(tmp_path: Path, word: str, origin: str, shown: str) -> None:
    run = RunFolder(made_run(tmp_path / "run", FULL))
    environment = {**run.read_environment(), "start": {"word": word, "origin": origin}}
    (run.path / "environment.json").write_text(json.dumps(environment))
    facts = CardFacts(run, run.settings(), (), {}, {}, {"dualtemp": "1.0", "epoch": 1})
    assert shown in _origin(facts)
    assert "secret" not in _origin(facts)
    run.config.unlink()  # the start itself
    own = replace(facts, settings=facts.settings.model_copy(update={"init": word}))
    assert f"`{Path(word).name}`" in _origin(own)
    assert "secret" not in _origin(own)


@pytest.mark.parametrize(("recorded", "said"), [(5_000, "5,000"), (None, "a tenth")])
def test_the_card_does_not_count_images_held_out_of_training_among_those_learned_from(
    recorded: int | None, said: str, tmp_path: Path
) -> None:
    run = RunFolder(made_run(tmp_path / "run", FULL, init="imagenet", stop_below_start=True, knn_images=60_000))
    facts = CardFacts(run, run.settings(), (), {}, {}, {})
    environment = {**run.read_environment(), **({} if recorded is None else {"held_out": recorded})}
    run.environment.write_text(json.dumps(environment))
    assert f"Of these, {said} were held out of training, to decide when to stop." in _data(facts)
    labels = [line.split(" | ")[3] for line in _figures(facts).splitlines() if " while training |" in line]
    assert labels == [str(50_000 - (recorded or 0))]
    without = replace(facts, settings=facts.settings.model_copy(update={"stop_below_start": False}))
    assert ("held out of training" in _data(without)) == (recorded is not None), "what was held out stays held out"
