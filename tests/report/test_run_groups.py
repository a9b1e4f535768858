"""Runs of several seeds as one: what counts as a seed, and which runs count."""

from pathlib import Path

import pytest
from made_runs import epochs, made_run
from scipy import stats

from dualtemp.report.compare_page import grouped_figures
from dualtemp.report.run_groups import group_rows, seed_means
from dualtemp.report.runs_list import describe_run
from dualtemp.runs.record import read_run

HALF = stats.t.ppf(0.975, 1) * stats.sem([50.0, 52.0])


def run_with(path: Path, seed: int, *values: float, **settings: object) -> Path:
    """A run of four epochs, of which as many are finished as there are values."""
    return made_run(path, epochs(probe_top1=list(values)), seed=seed, **settings)


def test_values_of_a_seed_are_averaged_first() -> None:
    assert seed_means([(1, 50.0), (2, 60.0), (1, 52.0)]) == [51.0, 60.0]


def test_copies_of_a_run_are_no_further_seeds(tmp_path: Path) -> None:
    paths = [
        run_with(tmp_path / f"{name}{seed}", seed, 1.0, 2.0, 3.0, 48.0 + 2 * seed)
        for name in ("run", "copy")
        for seed in (1, 2)
    ]
    (row,) = group_rows([describe_run(path, path.name) for path in paths], ["probe"])
    assert (row["runs"], row["seeds"], row["probe"]) == (4, [1, 2], 51.0)
    assert row["probe_half"] == pytest.approx(HALF)
    (group,) = grouped_figures([read_run(path) for path in paths], ["run"] * 4)
    assert (group["runs"], group["seeds"]) == (4, "1, 2")
    assert group["means"][0][1] == f"51.00 % ± {HALF:.2f}"


def test_the_page_averages_no_unfinished_run_with_finished_ones(tmp_path: Path) -> None:
    paths = [run_with(tmp_path / f"run{seed}", seed, 1.0, 2.0, 3.0, 48.0 + 2 * seed) for seed in (1, 2)]
    paths.append(run_with(tmp_path / "run3", 3, 12.0))
    paths.append(made_run(tmp_path / "run4", seed=4))
    (group,) = grouped_figures([read_run(path) for path in paths], ["run"] * 4)
    assert (group["runs"], group["seeds"]) == (2, "1, 2")
    assert group["means"][0][1] == f"51.00 % ± {HALF:.2f}"


def test_a_run_that_stopped_itself_counts(tmp_path: Path) -> None:
    judged = {"stop_by_judge": True}
    paths = [run_with(tmp_path / "run1", 1, 1.0, 2.0, 3.0, 50.0, **judged)]
    paths.append(made_run(tmp_path / "run2", [{"probe_top1": 52.0, "stopped": True}], seed=2, **judged))
    (group,) = grouped_figures([read_run(path) for path in paths], ["run"] * 2)
    assert group["means"][0][1] == f"51.00 % ± {HALF:.2f}"
