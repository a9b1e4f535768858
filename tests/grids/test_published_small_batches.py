"""What docs/results/small-batches says is what its cells say."""

import csv
import json
import math
from pathlib import Path
from statistics import fmean

import yaml

from dualtemp.cli import main

FOLDER = Path(__file__).parents[2] / "docs" / "results" / "small-batches"


def rows_of(grid: str, tmp_path: Path) -> list[dict[str, str]]:
    """The table of a grid as its command writes it, from the published cells."""
    out, cells = tmp_path / f"{grid}.csv", FOLDER / "cells"
    assert main(["grid", str(FOLDER / f"{grid}.yaml"), "--results", str(cells), "--no-run", "--out", str(out)]) == 0
    with out.open() as file:
        return list(csv.DictReader(file))


def test_the_rate_of_each_method_is_its_best_on_held_out_images(tmp_path: Path) -> None:
    methods = yaml.safe_load((FOLDER / "table.yaml").read_text())["rows"]
    tried = rows_of("rates", tmp_path)
    assert len(tried) == 4 * len(methods)
    for name, settings in methods.items():
        accuracy = {float(row["lr"]): float(row["seed 0"]) for row in tried if row["row"] == name}
        assert accuracy[settings["lr"]] == max(accuracy.values()), name


def test_both_grids_differ_in_the_rates_the_batches_and_the_images_measured() -> None:
    rates, table = (yaml.safe_load((FOLDER / f"{name}.yaml").read_text()) for name in ("rates", "table"))
    assert rates["fixed"] == table["fixed"] | {"batch": 64, "validate": "held-out"}
    assert rates["rows"] == {
        name: {key: value for key, value in settings.items() if key != "lr"} for name, settings in table["rows"].items()
    }


def test_the_words_and_the_page_have_the_figures_of_the_cells(tmp_path: Path) -> None:
    text, table = (FOLDER / "README.md").read_text(), rows_of("table", tmp_path)
    for name in dict.fromkeys(row["row"] for row in table):
        cells = [row for row in table if row["row"] == name]
        assert [row["seeds"] for row in cells] == ["3"] * 6
        told = " | ".join(
            f"{float(row['mean']):.1f} ± {(float(row['high']) - float(row['low'])) / 2:.1f}" for row in cells
        )
        assert f"| {name} | {told} |" in text
    with (tmp_path / "table-comparisons.csv").open() as file:
        contrasts = [row for row in csv.DictReader(file) if row["first"] == "dual temperature"]
    for row in contrasts:  # two temperatures against one, at each batch
        effect, low, high = (float(row[key]) for key in ("difference", "low", "high"))
        assert f"{effect:+.2f} ({low:.2f} to {high:.2f}) at" in " ".join(text.split())
    assert [row["where"] for row in contrasts] == ["16", "32", "64", "128", "256", "512"]
    page = (FOLDER / "page.html").read_text()
    assert all(f"{float(row['mean']):.2f}" in page for row in table)


def test_the_inequality_of_the_anchors_is_that_of_the_cells() -> None:
    cells = [json.loads(path.read_text()) for path in (FOLDER / "cells").glob("*-s[123].json")]
    one = [
        each for each in cells if each["settings"].get("tau_beta") == "tied" and each["settings"]["method"] == "simco"
    ]
    text = " ".join((FOLDER / "README.md").read_text().split())
    for batch in (16, 32, 64, 128, 256, 512):
        entropies = [each["metrics"]["entropy"] for each in one if each["settings"]["batch"] == batch]
        assert len(entropies) == 3
        told = f"{math.log(batch) - fmean(entropies):.2f}".removeprefix("0")
        assert (f"{told} at {batch}" if batch < 256 else f"{told} from 256 on") in text


def test_our_losses_and_those_of_other_libraries_have_the_accuracies_that_the_text_tells() -> None:
    found: dict[str, float] = {}
    for path in (FOLDER / "peers").glob("*.json"):
        cell = json.loads(path.read_text())
        chosen = cell["settings"]
        if chosen["method"] == "peer":
            found[chosen["peer_loss"]] = cell["metrics"]["knn_top1"]
        else:
            found["InfoNCE" if chosen["weight"] == "sigmoid" else chosen["weight"]] = cell["metrics"]["knn_top1"]
    text = (FOLDER / "README.md").read_text()
    for ours, theirs in {
        "InfoNCE": "lightly NTXentLoss",
        "equal": "lightly DCLLoss",
        "memory": "libauc GCLoss",
    }.items():
        assert f"| {ours} | {found[ours]:.1f} | {theirs} | {found[theirs]:.1f} |" in text
