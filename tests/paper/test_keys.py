"""Keys of results: those of the published cells stand, and what a run computes is in them."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from paper.smoke import digits, tiny_job

from dualtemp.config import ADDED_LATER, Settings, from_yaml, of_run, settings, to_yaml
from dualtemp.frameworks import framework_named
from dualtemp.grids.results import DataFacts, key, make_job
from dualtemp.paper.artifact import artifacts
from dualtemp.paper.plan import plan
from dualtemp.paper.scale import load_scale

CELLS = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*/cells/*.json"))


def test_the_keys_of_all_published_cells_follow_from_what_they_hold() -> None:
    assert len(CELLS) > 150
    for path in CELLS:
        cell = json.loads(path.read_text())
        chosen = settings(of_run(cell["settings"]))
        assert f"{key(chosen, DataFacts(**cell['data']))}-s{chosen.seed}" == path.stem


@pytest.mark.parametrize("scale", ["mini", "long", "sharp"])
def test_a_scale_finds_the_published_cells_of_byol_and_they_are_version_1(scale: str) -> None:
    cells = {path.stem: json.loads(path.read_text()) for path in CELLS if path.parts[-3] == scale}
    byol = {name: DataFacts(**cell["data"]) for name, cell in cells.items() if cell["settings"]["method"] == "byol"}
    runs = plan([artifacts()["T-unified"]], load_scale(scale)).runs.values()
    planned = [run for run in runs if run.settings["method"] == "byol"]
    assert [run.settings["computation"] for run in planned] == [1, 1]
    facts = next(iter(byol.values()), digits())
    assert set(byol) <= {make_job(run, seed, facts).name for run in planned for seed in (1, 2, 3)}


def test_the_published_settings_are_those_of_the_newest_versions() -> None:
    for run in plan(list(artifacts().values()), load_scale("paper")).runs.values():
        assert run.with_seed(1).computation is None
    assert tiny_job(method="byol").settings.computation == framework_named("byol").version


def test_a_newer_version_is_another_key_and_version_1_is_the_key_from_before() -> None:
    names = {version: tiny_job(method="byol", computation=version).name for version in (1, 2)}
    assert names[1] != names[2] == tiny_job(method="byol").name
    assert tiny_job(method="simco").name == tiny_job(method="simco", computation=1).name


def test_what_was_added_later_counts_only_away_from_what_every_run_had_before() -> None:
    plain = tiny_job(method="simco")
    for name, before in ADDED_LATER.items():
        assert name in Settings.model_fields
        same = plain.settings.model_copy(update={name: before})
        assert key(same, plain.facts) == key(plain.settings, plain.facts)
        with warnings.catch_warnings(action="ignore"):  # pydantic's, of a value that no setting has
            other = plain.settings.model_copy(update={name: __file__})  # a file that is there, for `labels_from`
            assert key(other, plain.facts) != key(same, plain.facts)


def test_a_weight_and_a_schedule_are_in_the_key_only_where_they_change_a_run() -> None:
    plain = tiny_job(method="simco")
    assert tiny_job(method="simco", weight="sigmoid", temperature_schedule="constant").name == plain.name
    others = [
        {"weight": "equal"},
        {"weight": "memory"},
        {"weight": "memory", "gamma": 0.5},
        {"weight": "per_image"},
        {"temperature_schedule": "linear", "tau_alpha_end": 0.5},
        {"temperature_schedule": "cosine", "tau_alpha_end": 0.5},
        {"temperature_schedule": "adaptive"},
    ]
    names = {tiny_job(method="simco", **other).name for other in others}
    assert len(names - {plain.name}) == len(others)


HEADS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (method, {head: False}, {head: True})
    for method in ("moco", "simmoco", "simco")
    for head in ("predictor", "projector_batch_norm")
]
HEADS += [("simsiam", {"projector_width": 2048}, {"projector_width": 512})]


@pytest.mark.parametrize(("method", "usual", "other"), HEADS)
def test_a_head_is_in_a_key_only_where_it_is_chosen(method: str, usual: dict[str, Any], other: dict[str, Any]) -> None:
    without, with_one = (tiny_job(method=method, **value) for value in (usual, other))
    assert tiny_job(method=method).name == without.name != with_one.name


@pytest.mark.parametrize("method", ["moco", "simmoco", "simco"])
def test_the_config_of_a_run_from_before_these_heads_is_complete(method: str, tmp_path: Path) -> None:
    written = to_yaml(tiny_job(method=method).settings)
    later = ("predictor:", "projector_batch_norm:", "computation:")
    assert all(f"\n{name} false\n" in written for name in later[:2])
    lines = [line for line in written.splitlines() if not line.startswith(later)]
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    assert from_yaml(tmp_path / "config.yaml")["computation"] == 1, "what it had then, not the newest"
