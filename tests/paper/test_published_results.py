"""The published summaries and pages are what the command makes of the published cells."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest
import yaml

from dualtemp.cli import main

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
COMMANDS = {
    "mini": "T-reverse T-tau-beta F-entropy F-dict T-vec-sampling S-scalar-sampling T-unified S-noise "
    "--scale mini --seeds 5",
    "mini-cifar100": "T-reverse --scale mini --seeds 3 --data cifar100 --data cifar100=fbb43d70",
    "unequal-cifar100": "T-reverse T-data --scale unequal --seeds 5 --data cifar100 --data cifar100=fbb43d70",
    "long": "T-reverse S-noise --scale long --seeds 3",
    "sharp": "T-unified --scale sharp --seeds 3",
    "unequal": "T-reverse T-tau-beta T-arch T-data F-dict F-entropy S-similarity S-scalar-sampling T-unified S-noise "
    "--scale unequal --seeds 5",
}

# Beside the runs of C1, `unequal` has runs of other steps, rates, networks and losses; older cells lack such settings.
AT_THE_SAME_RATE: dict[str, object] = {
    "match_step": False,
    "lr": 0.12,
    "validate": "test",
    "backbone": "resnet_mini",
    "symmetric": False,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "mini")) for name in COMMANDS])
def test_summary_and_page_come_from_the_cells(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = PUBLISHED / name
    written = ["--summary", str(tmp_path / "summary.md"), "--report", str(tmp_path / "page.html")]
    assert main(["paper", *COMMANDS[name].split(), "--results", str(folder / "cells"), *written]) == 0
    assert (tmp_path / "summary.md").read_text() == (folder / "summary.md").read_text()
    assert (tmp_path / "page.html").read_text() == (folder / "page.html").read_text()


def test_every_published_folder_is_compared_and_its_command_is_in_the_text() -> None:
    grids = {"small-batches"}  # compared in tests/grids
    assert {path.parent.name for path in PUBLISHED.glob("*/cells")} == set(COMMANDS) | grids
    text = " ".join((PUBLISHED / "README.md").read_text().replace("\\\n", " ").split())
    for name, words in COMMANDS.items():
        assert f"dualtemp paper {words} --results docs/results/{name}/cells" in text


# MoCo v2 whose components both see the whole dictionary: without the settings of their sizes.
WHOLE_DICTIONARY: dict[str, object] = {
    "method": "moco",
    "keys": "dictionary",
    "scalar_size": False,
    "vector_size": False,
}
FRAMEWORKS: dict[tuple[str, str], dict[str, object]] = {
    ("MoCo v2", "one"): WHOLE_DICTIONARY,
    ("SimMoCo", "one"): {"method": "simmoco", "tau_beta": 0.1},
    ("SimMoCo", "two"): {"method": "simmoco", "tau_beta": 1.0},
    ("SimCo", "one"): {"method": "simco", "tau_beta": 0.1},
    ("SimCo", "two"): {"method": "simco", "tau_beta": 1.0},
}


def test_the_frameworks_with_and_without_a_dictionary_are_told_as_their_cells_say() -> None:
    readme = (PUBLISHED.parents[1] / "README.md").read_text().replace("**", "")
    text = (PUBLISHED / "README.md").read_text().split("## Without the dictionary")[1].split("\n## ")[0]
    for (name, temperatures), settings in FRAMEWORKS.items():
        found = metrics_of("unequal", **AT_THE_SAME_RATE, **settings)
        assert len(found) == 5
        assert re.search(rf"^\| {name} \|.*\| {temperatures} \| {mean(found, 'probe_top1')} \| \d", readme, re.M)
        figures = [mean(found, key) for key in ("probe_top1", "knn_top1", "W_mean")] + [mean(found, "entropy", 3)]
        assert re.search(rf"^\| {name} \|.*\| {temperatures} \| {re.escape(' | '.join(figures))} \|$", text, re.M)


def test_every_figure_in_the_words_is_in_a_summary_or_on_the_page_of_a_grid() -> None:
    whole = (PUBLISHED / "README.md").read_text()
    text = "".join(whole.split(f"\n## {name}\n")[1].split("## ")[0] for name in ("Where it stands", "Shorter runs"))
    told = (PUBLISHED.parents[1] / "README.md").read_text().split("With two temperatures")[1].split("##")[0]
    sources = [PUBLISHED / name / "summary.md" for name in COMMANDS]
    sources += [
        PUBLISHED / "unequal" / f"{name}.html" for name in ("same-step", "own-rates", "capacity", "dictionaries")
    ]
    told_there = re.sub(r"(?s)<style.*?</style>|base64,[^\"]*", "", " ".join(path.read_text() for path in sources))
    known = set(re.findall(r"\d+\.\d\d", told_there))
    figures = re.findall(r"\d+\.\d\d", text + told)
    assert len(figures) > 40
    assert set(figures) - known == {"4.59"}  # the paper's


def test_the_power_in_the_words_is_what_the_command_tells(capsys: pytest.CaptureFixture[str]) -> None:
    text = (PUBLISHED / "README.md").read_text().split("## What seeds can show")[1].split("## ")[0]
    words = "paper T-reverse --scale mini --seeds 5 --results docs/results/mini/cells --power 1"
    assert f"    dualtemp {words}\n" in text
    assert main(words.replace("docs/results", str(PUBLISHED)).split()) == 0
    told = [line for line in capsys.readouterr().out.split("\n\n", 1)[1].splitlines() if line]
    assert len(told) == 7
    assert all(f"    {line}\n" in text for line in told)


def test_entropies_in_the_summary_are_means_of_the_cells_to_five_digits() -> None:
    cells = [json.loads(path.read_text()) for path in sorted((PUBLISHED / "mini" / "cells").glob("*.json"))]
    curves = [cell["measured"]["entropy"]["values"] for cell in cells if "entropy" in cell["measured"]]
    assert len(curves) == 3
    summary = (PUBLISHED / "mini" / "summary.md").read_text().split("### F-entropy")[1]
    for tau in ("0.05", "0.1", "1"):
        row = next(line for line in summary.splitlines() if line.startswith(f"| {tau} |")).split("|")[2:-1]
        means = [fmean(curve[tau][size] for curve in curves) for size in ("16", "64", "256", "1024", "4096", "16384")]
        assert [cell.split()[0] for cell in row] == [f"{mean:.5f}" for mean in means]


def metrics_of(name: str, **settings: object) -> list[dict[str, float]]:
    """The last epoch's metrics of published runs that have these settings, at the first look: seeds up to 5."""
    return metrics_up_to(5, name, settings)


def metrics_up_to(seed: int, name: str, settings: Mapping[str, object]) -> list[dict[str, float]]:
    found = [json.loads(path.read_text()) for path in (PUBLISHED / name / "cells").glob("*.json")]
    return [
        cell["metrics"]
        for cell in found
        if cell["settings"]["seed"] <= seed
        and all(cell["settings"].get(key, False) == value for key, value in settings.items())
    ]


def mean(metrics: list[dict[str, float]], name: str, places: int = 2) -> str:
    return f"{fmean(one[name] for one in metrics):.{places}f}".removeprefix("0")


def test_inequality_and_effect_of_each_pair_of_arms_are_those_of_the_cells() -> None:
    text = (PUBLISHED / "README.md").read_text().split("## When does the second temperature help?")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (SimCo|SimMoCo), `(\w+)`( on CIFAR-100)? \| (\S+) \| (.+) \| ([+-]\S+) ", text, re.M)
    assert len(rows) == 9
    assert [row[3] for row in rows] == sorted(row[3] for row in rows)
    for framework, scale, other_set, inequality, weight, effect in rows:
        folder = f"{scale}-cifar100" if other_set else scale
        arms = [{"method": framework.lower(), "tau_alpha": 0.1, "tau_beta": beta} for beta in (0.1, 1.0)]
        others = AT_THE_SAME_RATE if scale == "unequal" else {}
        one, two = (metrics_of(folder, **others, **arm) for arm in arms)
        assert inequality == f"{math.log(64) - fmean(run['entropy'] for run in one):.3f}".removeprefix("0")
        assert weight == (mean(one, "W_mean") if "W_mean" in one[0] else "not recorded")
        assert effect == f"{fmean(run['probe_top1'] for run in two) - fmean(run['probe_top1'] for run in one):+.2f}"
    for framework in ("simco", "simmoco"):
        arms = [metrics_of("unequal", method=framework, tau_beta=beta, **AT_THE_SAME_RATE) for beta in (0.1, 1.0)]
        one, two = (fmean(run["knn_top1"] for run in arm) for arm in arms)
        assert f"{one:.2f} against {two:.2f}, {two - one:+.2f}" in " ".join(text.split())


def test_the_arm_of_the_same_step_is_told_as_its_cells_and_its_page_say(tmp_path: Path) -> None:
    text = (PUBLISHED / "README.md").read_text().split("## Other weights, or larger steps?")[1].split("\n## ")[0]
    words = " ".join(text.split())
    arms = {
        "one temperature": {"tau_beta": 0.1, **AT_THE_SAME_RATE},
        "two temperatures": {"tau_beta": 1.0, **AT_THE_SAME_RATE},
        "two temperatures, the steps of one": {"match_step": True},
    }
    told = {"SimCo": "0.15 to 1.32", "SimMoCo": "-0.27 to 0.89"}
    for framework, interval in told.items():
        runs = {name: metrics_up_to(10, "unequal", {"method": framework.lower(), **arm}) for name, arm in arms.items()}
        for name, found in runs.items():
            assert len(found) == 10
            figures = [mean(found, key) for key in ("probe_top1", "knn_top1", "W_mean")]
            assert f"| {framework}, {name} | {' | '.join(figures)} |" in text
        one, two, same = (
            [fmean(run[key] for run in found) for key in ("probe_top1", "knn_top1")] for found in runs.values()
        )
        assert f"{framework}: {same[0] - one[0]:+.2f}" in words
        assert f"({interval}" in words or f"97.06 % interval {interval}" in words
        assert f"by kNN {same[1] - one[1]:+.2f}." in words
        assert f"The other {two[0] - same[0]:.2f} of the {two[0] - one[0]:.2f} points go with larger steps" in words
    folder, page = PUBLISHED / "unequal", tmp_path / "same-step.html"
    grid = [str(folder / "same-step.yaml"), "--results", str(folder / "cells"), "--seeds", "10", "--no-run"]
    assert main(["grid", *grid, "--out", str(page)]) == 0
    shown = (
        "+0.73</td><td>+0.15 … +1.32</td><td>+0.07 … +1.39",
        "+0.31</td><td>\u22120.27 … +0.89</td><td>\u22120.35 … +0.97",
    )
    for written in (page, folder / "same-step.html"):
        cells = re.sub(r"<td[^>]*>", "<td>", written.read_text().replace("\n", ""))
        assert all(f"<td>{interval}</td>" in cells for interval in shown)
        assert "at 97.06 % each" in cells, "the level of the looks, not that of the cells' intervals"


def test_each_arm_has_the_rate_that_was_best_on_held_out_images() -> None:
    text = (PUBLISHED / "README.md").read_text().split("## Each arm at its own best rate")[1].split("\n## ")[0]
    rows = yaml.safe_load((PUBLISHED / "unequal" / "own-rates.yaml").read_text())["rows"]
    arms = {"one temperature": rows["one, own rate"], "two temperatures": rows["two, own rate"]}
    taken = {("SimCo", arm): row["lr"] for arm, row in arms.items()} | {
        ("SimMoCo", arm): AT_THE_SAME_RATE["lr"] for arm in arms
    }
    for (framework, arm), taken_rate in taken.items():
        tried: dict[float, float] = {}
        for rate in (0.06, 0.12, 0.24, 0.48):
            settings = {"method": framework.lower(), "tau_beta": arms[arm]["tau_beta"], "lr": rate}
            for run in metrics_of("unequal", validate="held-out", **settings):
                tried[rate] = run["probe_top1"]
        assert len(tried) >= 3
        assert taken_rate == max(tried, key=tried.__getitem__) not in (min(tried), max(tried))
        told = [f"{tried[rate]:.2f}" if rate in tried else "" for rate in (0.06, 0.12, 0.24, 0.48)]
        row = next(line for line in text.splitlines() if line.startswith(f"| {framework}, {arm} |")).replace("**", "")
        assert [cell.strip() for cell in row.split("|")[2:-1]] == told


def test_each_arm_at_its_own_rate_is_told_as_its_cells_and_its_page_say(tmp_path: Path) -> None:
    whole = (PUBLISHED / "README.md").read_text()
    text = " ".join(whole.split("## Each arm at its own best rate")[1].split("\n## ")[0].split())
    rows = yaml.safe_load((PUBLISHED / "unequal" / "own-rates.yaml").read_text())["rows"]
    runs = {name: metrics_of("unequal", **{**AT_THE_SAME_RATE, "method": "simco", **arm}) for name, arm in rows.items()}
    for name, found in runs.items():
        assert len(found) == 5
        arm, _, which = name.partition(", ")
        words = f"{arm} temperature{'s' * (arm == 'two')}, {which}"
        rate = f"{rows[name]['lr']}".removeprefix("0")
        assert f"| {words} | {rate} | {mean(found, 'probe_top1')} | {mean(found, 'knn_top1')} |" in text
    one, two = (
        {key: fmean(run[key] for run in found) for key in ("probe_top1", "knn_top1")}
        for found in list(runs.values())[:2]
    )
    gain, by_knn = (two[key] - one[key] for key in ("probe_top1", "knn_top1"))
    assert f"beat one by **{gain:.2f} points (97.06 % interval 1.63 to 3.13; seed by seed 1.50 to 3.26)**" in text
    assert f"and by kNN by {by_knn:.2f}." in text
    assert f"| **+{gain:.2f}** (1.63 to 3.13) |" in whole.split("## In short")[1].split("\n## ")[0]
    folder, page = PUBLISHED / "unequal", tmp_path / "own-rates.html"
    grid = [str(folder / "own-rates.yaml"), "--results", str(folder / "cells"), "--seeds", "5", "--no-run"]
    assert main(["grid", *grid, "--out", str(page)]) == 0
    for written in (page, folder / "own-rates.html"):
        cells = re.sub(r"<td[^>]*>", "<td>", written.read_text().replace("\n", ""))
        assert f"<td>+{gain:.2f}</td><td>+1.63 … +3.13</td>" in cells
        assert "+1.50 … +3.26" in cells
        assert "One comparison, at 97.06 %" in cells


SHRUNK: dict[str, dict[str, object]] = {
    "whole dictionary | 16,384 | 16,384": WHOLE_DICTIONARY,
    "scalar shrunk | 16 | 16,384": {"scalar_size": 16},
    "vector shrunk | 16,384 | 64": {"vector_size": 64},
    "vector shrunk further | 16,384 | 16": {"vector_size": 16},
}


def test_the_dictionaries_of_scalar_and_vector_are_told_as_their_cells_and_their_page_say(tmp_path: Path) -> None:
    text = (PUBLISHED / "README.md").read_text().split("## The dictionaries of scalar")[1].split("\n## ")[0]
    words = " ".join(text.split())
    looks: dict[int, list[float]] = {}
    for seeds in (5, 10):
        effects: list[float] = []
        for row, sizes in SHRUNK.items():
            found = metrics_up_to(seeds, "unequal", {**AT_THE_SAME_RATE, "method": "moco", **sizes})
            assert len(found) == seeds
            figures = [mean(found, key) for key in ("probe_top1", "knn_top1", "W_mean")] + [mean(found, "entropy", 3)]
            assert (f"| {row} | {' | '.join(figures)} |" in text) == (seeds == 10)
            effects.append(fmean(run["probe_top1"] for run in found))
        looks[seeds] = [effect - effects[0] for effect in effects[1:]]
    scalar, batch, quarter = looks[10]
    assert f"it costs {-scalar:.2f} points (97.06 % interval 0.54 to 2.01; at once 0.39 to 2.16" in words
    assert f"the difference is {batch:+.2f} (-0.78 to 0.69; at once -0.92 to 0.84)" in words
    assert f"With 16 keys {-quarter:.2f} points are lost (1.74 to 3.21; at once 1.60 to 3.36)" in words
    first = f"{-looks[5][0]:+.2f} (0.00 to 2.53), {looks[5][1]:+.2f} (-1.16 to 1.38) and {looks[5][2]:+.2f} (-3.59 to"
    assert first in words
    folder = PUBLISHED / "unequal"
    grid = [str(folder / "dictionaries.yaml"), "--results", str(folder / "cells"), "--no-run"]
    shown = {
        5: ["\u22120.00 … +2.53", "\u22121.16 … +1.38", "\u22123.59 … \u22121.05"],
        10: ["+0.54 … +2.01", "\u22120.78 … +0.69", "\u22123.21 … \u22121.74"],
    }
    for seeds, intervals in shown.items():
        page = tmp_path / f"{seeds}.html"
        assert main(["grid", *grid, "--seeds", str(seeds), "--out", str(page)]) == 0
        assert all(interval in page.read_text() for interval in intervals)
    assert all(interval in (folder / "dictionaries.html").read_text() for interval in shown[10])


def test_the_keys_that_the_scalar_sees_are_told_as_their_cells_and_the_summary_say() -> None:
    text = (PUBLISHED / "README.md").read_text().split("## Which keys the scalar sees")[1].split("\n## ")[0]
    summary = (PUBLISHED / "unequal" / "summary.md").read_text().replace("\u2212", "-").replace(" … ", " to ")
    probes = {}
    for keys in ("earliest", "random", "newest"):
        found = metrics_of("unequal", **AT_THE_SAME_RATE, method="moco", scalar_size=1024, scalar_sampling=keys)
        assert len(found) == 5
        assert f"| {keys} | 1,024 | {mean(found, 'probe_top1')} | {mean(found, 'knn_top1')} |" in text
        probes[keys] = fmean(run["probe_top1"] for run in found)
    for first, second in (("earliest", "random"), ("earliest", "newest"), ("random", "newest")):
        row = next(line for line in summary.splitlines() if f"| {first} = {second} |" in line)
        assert f"| {probes[first] - probes[second]:+.2f} (" in row
        low, high = re.findall(r"[+-]\d+\.\d\d", row)[1:3]
        told = f"{-float(high):.2f} to {-float(low):.2f}"
        assert told in " ".join(text.split())


ONE_PAIR_OR_TWO: dict[str, dict[str, object]] = {
    "MoCo v2 | one | 2": WHOLE_DICTIONARY,
    "MoCo v2+ | two | 4": {**WHOLE_DICTIONARY, "symmetric": True},
    "SimMoCo | one | 2": {"method": "simmoco", "tau_beta": 1.0},
    "SimMoCo+ | two | 4": {"method": "simmoco", "tau_beta": 1.0, "symmetric": True},
    "SimCo | one, both ways | 2": {"method": "simco", "tau_beta": 1.0},
}


@pytest.mark.parametrize("folder", ["unequal", "unequal-cifar100"])
def test_the_symmetric_loss_is_told_as_its_cells_say(folder: str) -> None:
    text = (PUBLISHED / "README.md").read_text().split("## Two pairs of views")[1].split("\n## ")[0]
    summary = (PUBLISHED / folder / "summary.md").read_text().replace("\u2212", "-").replace(" … ", " to ")
    probes = []
    for row, settings in ONE_PAIR_OR_TWO.items():
        found = metrics_of(folder, **{**AT_THE_SAME_RATE, **settings})
        assert len(found) == 5
        figures = [mean(found, key) for key in ("probe_top1", "knn_top1", "W_mean")] + [mean(found, "entropy", 3)]
        assert f"| {row} | {' | '.join(figures)} |" in text
        probes.append(fmean(run["probe_top1"] for run in found))
    for name, gain in (("MoCo v2", probes[1] - probes[0]), ("SimMoCo", probes[3] - probes[2])):
        shown = re.search(rf"\| {re.escape(name)}\+ > {name} \| \{gain:+.2f} \((\S+ to \S+)\)", summary)
        assert shown is not None
        low, high = (float(end) for end in shown[1].split(" to "))
        assert f"{name}: {gain:+.2f} ({low:.2f} to {high:.2f}" in " ".join(text.split())


@pytest.mark.parametrize(
    ("keys", "settings"), [("last", {"method": "moco", "keys": "last"}), ("current", {"method": "simmoco"})]
)
def test_accuracy_by_tau_beta_is_told_as_its_cells_say(keys: str, settings: dict[str, object]) -> None:
    text = (PUBLISHED / "README.md").read_text().split("## How large tau_beta has to be")[1].split("\n## ")[0]
    for beta in (0.05, 0.1, 0.5, 1.0, 5.0):
        found = metrics_of("unequal", **AT_THE_SAME_RATE, **settings, tau_beta=beta)
        assert len(found) == 5
        inequality = f"{math.log(64) - fmean(run['entropy'] for run in found):.3f}".removeprefix("0")
        figures = [mean(found, key) for key in ("probe_top1", "knn_top1", "W_mean")]
        assert f"| {keys} | {beta:g} | {' | '.join(figures)} | {inequality} |".replace("| 0.", "| .") in text


def test_effects_of_tau_beta_are_told_as_the_summary_says() -> None:
    text = (PUBLISHED / "README.md").read_text().split("## How large tau_beta has to be")[1].split("\n## ")[0]
    summary = (PUBLISHED / "unequal" / "summary.md").read_text().split("### C3")[1].split("### C5")[0]
    figure = r"(-?\d+\.\d\d)"
    single = rf"{figure} \({figure} … {figure}\)"
    known = set(re.findall(single, summary.replace("\u2212", "-").replace("+", "")))
    told = re.findall(single.replace("…", "to"), " ".join(text.split()).replace("+", ""))
    assert len(told) >= 4
    assert set(told) <= known


@pytest.mark.parametrize(
    ("method", "name", "gain", "at_once", "by_seed"),
    [
        ("simco", "SimCo", "+1.45 (0.92 to 1.98)", "0.83 to 2.07", "0.70 to 2.20"),
        ("simmoco", "SimMoCo", "+0.71 (-0.36 to 1.78)", "-0.55 to 1.97", "0.07 to 1.35"),
    ],
)
def test_the_wider_network_is_told_as_its_cells_and_its_page_say(
    method: str, name: str, gain: str, at_once: str, by_seed: str, tmp_path: Path
) -> None:
    whole = (PUBLISHED / "README.md").read_text()
    text = whole.split("## In a network twice as wide")[1].split("\n## ")[0]
    words = " ".join(text.split())
    wide = {**AT_THE_SAME_RATE, "backbone": "resnet_mini_x2", "method": method}
    arms = {"one": metrics_of("unequal", **wide, tau_beta=0.1), "two": metrics_of("unequal", **wide, tau_beta=1.0)}
    for arm, found in arms.items():
        assert len(found) == 5
        inequality = f"{math.log(64) - fmean(run['entropy'] for run in found):.3f}".removeprefix("0")
        figures = [mean(found, key) for key in ("probe_top1", "knn_top1", "W_mean")]
        assert f"| {name} | {arm} | {' | '.join(figures)} | {inequality} |" in text
        if arm == "one":
            row = f"| {name} twice as wide, `unequal` | {inequality} | {figures[2]} | {gain.replace(' to ', ' ... ')} |"
            assert row in whole
    differences = {
        key: fmean(run[key] for run in arms["two"]) - fmean(run[key] for run in arms["one"])
        for key in ("probe_top1", "knn_top1")
    }
    assert gain.startswith(f"{differences['probe_top1']:+.2f} (")
    assert f"{gain.replace('(', '(97.06 % interval ')}" in words
    assert f"by kNN {differences['knn_top1']:+.2f}" in words
    folder, page = PUBLISHED / "unequal", tmp_path / "capacity.html"
    grid = [str(folder / "capacity.yaml"), "--results", str(folder / "cells"), "--seeds", "5", "--no-run"]
    assert main(["grid", *grid, "--out", str(page)]) == 0
    for written in (page, folder / "capacity.html"):
        cells = re.sub(r"<td[^>]*>", "<td>", written.read_text().replace("\n", ""))
        intervals = [gain.split("(")[1].strip(")"), at_once, by_seed]
        shown = [" … ".join(f"{float(end):+.2f}" for end in one.split(" to ")) for one in intervals]
        expected = "".join(f"<td>{one}</td>" for one in (gain.split()[0], *shown)).replace("-", "\u2212")
        assert expected in cells


@pytest.mark.parametrize("name", ["SimCo", "SimMoCo"])
def test_cifar_100_is_told_as_its_cells_and_its_summary_say(name: str) -> None:
    whole = (PUBLISHED / "README.md").read_text()
    text = whole.split("## On CIFAR-100")[1].split("\n## ")[0]
    arms = {
        arm: metrics_of("unequal-cifar100", **AT_THE_SAME_RATE, method=name.lower(), tau_alpha=0.1, tau_beta=beta)
        for arm, beta in (("one", 0.1), ("two", 1.0))
    }
    for arm, found in arms.items():
        assert len(found) == 5
        inequality = f"{math.log(64) - fmean(run['entropy'] for run in found):.3f}".removeprefix("0")
        figures = [mean(found, key) for key in ("probe_top1", "knn_top1", "W_mean")]
        assert f"| {name} | {arm} | {' | '.join(figures)} | {inequality} |" in text
    by_knn = fmean(run["knn_top1"] for run in arms["two"]) - fmean(run["knn_top1"] for run in arms["one"])
    told = told_effect("unequal-cifar100", "T-reverse", name)
    words = " ".join(text.split())
    assert f"- {name}: **{told.effect} (97.06 % interval {told.single})**" in words
    assert f"at once {told.at_once}, seed by seed {told.by_seed}, by kNN {by_knn:+.2f}." in words
    assert f"({told.single})" in whole.split("## In short")[1].split("\n## ")[0]


class Told(NamedTuple):
    """A comparison as a summary tells it: the effect, and its intervals in the words of the text."""

    effect: str
    single: str
    at_once: str
    by_seed: str


def told_effect(folder: str, table: str, place: str) -> Told:
    summary = (PUBLISHED / folder / "summary.md").read_text().replace("\u2212", "-")
    row = next(line for line in summary.splitlines() if line.startswith(f"| {table} | {place} |")).split("|")
    effect, *single = re.findall(r"[+-][\d.]+", row[4])
    intervals = single, re.findall(r"[+-][\d.]+", row[5]), re.findall(r"[+-][\d.]+", row[6])[1:]
    return Told(effect, *(" to ".join(end.removeprefix("+") for end in interval) for interval in intervals))


@pytest.mark.parametrize(("method", "name"), [("byol", "BYOL"), ("simsiam", "SimSiam")])
def test_hardness_without_negatives_is_told_as_the_cells_and_the_summary_say(method: str, name: str) -> None:
    text = (PUBLISHED / "README.md").read_text().split("## Hardness in BYOL and SimSiam")[1].split("\n## ")[0]
    means = {}
    for weighed, told in ((False, "no"), (True, "yes")):
        found = metrics_of("unequal", **AT_THE_SAME_RATE, method=method, hardness_aware=weighed)
        assert len(found) == 5
        inequality = f"{math.log(64) - fmean(run['entropy'] for run in found):.3f}".removeprefix("0")
        figures = [mean(found, key) for key in ("probe_top1", "knn_top1", "W_mean", "W_spread")]
        assert f"| {name} | {told} | {' | '.join(figures)} | {inequality} |" in text
        means[weighed] = {key: fmean(run[key] for run in found) for key in ("probe_top1", "knn_top1")}
    by_knn = means[False]["knn_top1"] - means[True]["knn_top1"]
    told = told_effect("unequal", "T-unified", name)
    assert told.effect == f"{means[False]['probe_top1'] - means[True]['probe_top1']:+.2f}"
    words = " ".join(text.split())
    assert f"- {name}: **{told.effect} (97.06 % interval {told.single})**" in words
    assert f"at once {told.at_once}, seed by seed {told.by_seed}, by kNN {by_knn:+.2f}." in words


def between(metrics: list[dict[str, float]], places: int = 0) -> str:
    losses = [one["loss"] for one in metrics]
    return f"{min(losses):.{places}f} ... {max(losses):.{places}f}"


def test_losses_and_weights_in_the_words_are_those_of_the_cells() -> None:
    text = " ".join((PUBLISHED / "README.md").read_text().split())
    ce, dual = ({"method": "supervised", "tau_beta": beta} for beta in (1.0, "inf"))
    clean = metrics_of("long", **dual, label_noise=0.0)
    noisy = [one for noise in (0.4, 0.6) for one in metrics_of("long", **dual, label_noise=noise)]
    assert f"rises to {between(metrics_of('mini', **dual, label_noise=0.0))} on clean labels" in text
    assert f"(training loss {between(metrics_of('long', **ce), 2)})" in text
    assert f"to {between(clean)} on clean labels and {between(noisy)} with noise" in text
    for noise in (0.4, 0.6):
        one, two = (metrics_of("unequal", **arm, label_noise=noise) for arm in (ce, dual))
        assert (len(one), len(two)) == (5, 5)
        gain = fmean(run["knn_top1"] for run in two) - fmean(run["knn_top1"] for run in one)
        assert f"{gain:+.2f} at {noise:.1f}".replace("0.4", ".4").replace("0.6", ".6") in text
    byol, simsiam, alone = (
        metrics_of("mini", method="byol"),
        metrics_of("mini", method="simsiam"),
        metrics_of("long", tau_beta=0.1),
    )
    assert (len(byol), len(simsiam), len(alone)) == (6, 6, 3)
    assert f"mean W is {mean(byol, 'W_mean')} with a spread of {mean(byol, 'W_spread')} (BYOL)" in text
    assert mean(simsiam, "W_mean") == mean(byol, "W_mean")
    assert f"and {mean(simsiam, 'W_spread')} (SimSiam)" in text
    assert f"the entropy of r_+ {mean(byol, 'entropy', 3)} and {mean(simsiam, 'entropy', 3)} of at most" in text
    assert f"falls to {mean(alone, 'W_mean')}, the entropy to {mean(alone, 'entropy')}, and" in text
