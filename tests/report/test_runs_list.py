import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_processes import PATIENCE
from made_runs import FULL, epochs, made_run
from scipy import stats

from dualtemp.cli import main
from dualtemp.commands.runs import SORTS
from dualtemp.evaluation.judge import keep_judged
from dualtemp.file_lock import locked
from dualtemp.report.runs_list import ORDERS, better_by_forecast, find_runs, runs_below


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four runs and a damaged one, some of them nested."""
    runs = tmp_path / "runs"
    made_run(runs / "a", FULL, tau_beta=float("inf"))
    made_run(runs / "deep" / "er" / "b", FULL[:2], method="moco")
    failed = made_run(runs / "c", FULL[:1], method="byol")
    (failed / "trouble.txt").write_text("the loss is not finite at step 7\n")
    better = [{**line, "probe_top1": line["probe_top1"] + 5} for line in FULL]
    made_run(runs / "d", better, data="/some/where/photos", labels=True)
    (made_run(runs / "broken") / "config.yaml").write_text("method: [simco\n")
    return runs


def listed(*words: object, capsys: pytest.CaptureFixture[str]) -> list[dict]:
    assert main(["runs", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_run_below_is_listed_with_its_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in listed(folder, capsys=capsys)}
    assert set(rows) == {"a", "deep/er/b", "broken", "c", "d"}
    a = rows["a"]
    assert (a["method"], a["data"], a["tau_alpha"], a["tau_beta"]) == ("simco", "cifar10", 0.1, "inf")
    assert (a["status"], a["epoch"], a["epochs"], a["probe"], a["knn"]) == ("done", 4, 4, 43.21, 41.5)
    assert Path(a["path"]) == folder / "a"
    assert rows["d"]["data"] == "photos"
    assert rows["deep/er/b"]["tau_beta"] == "tied"
    assert (rows["deep/er/b"]["status"], rows["deep/er/b"]["epoch"]) == ("interrupted", 2)
    assert rows["c"]["status"] == "failed"
    assert rows["c"]["tau_alpha"] is None


def test_a_table_has_a_line_a_run_and_the_reasons_below(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(folder)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == [
        "run",
        "method",
        "data",
        "tau_alpha",
        "tau_beta",
        "seed",
        "status",
        "epoch",
        "probe",
        "kNN",
        "date",
    ]
    assert out[1].split()[:10] == ["a", "simco", "cifar10", "0.1", "inf", "0", "done", "4/4", "43.21", "41.50"]
    assert "c failed: the loss is not finite at step 7" in out
    assert any(line.startswith("broken unreadable: ") and "not YAML" in line for line in out)


def test_help_and_documentation_name_all_that_runs_can_be_sorted_by() -> None:
    assert SORTS.replace(" or ", ", ").split(", ") == list(ORDERS)
    page = (Path(__file__).parents[2] / "docs" / "pages.md").read_text()
    assert f"`dualtemp runs --sort` takes {SORTS}; " in " ".join(page.split())


def test_runs_that_differ_in_nothing_but_their_seed_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {1: 40.0, 2: 44.0, 3: 45.0}
    for seed, value in values.items():
        made_run(tmp_path / f"a{seed}", epochs(probe_top1=[1.0, 2.0, 3.0, value]), seed=seed)
    made_run(tmp_path / "a4", epochs(probe_top1=[99.0]), seed=4)  # interrupted
    made_run(tmp_path / "b", FULL, tau_beta=0.5)
    (made_run(tmp_path / "broken") / "config.yaml").write_text("method: [simco\n")
    assert main(["runs", str(tmp_path), "--group", "--json"]) == 0
    a, b, broken = json.loads(capsys.readouterr().out)
    half = stats.t.ppf(0.975, 2) * stats.sem(list(values.values()))
    assert (a["name"], a["runs"], a["done"], a["seeds"]) == ("a1 and 3 more", 4, 3, [1, 2, 3])
    assert (a["probe"], a["probe_half"]) == (pytest.approx(43.0), pytest.approx(half))
    assert (b["probe"], b["probe_half"], broken["done"]) == (43.21, None, 0)
    assert main(["runs", str(tmp_path), "--group"]) == 0
    out = capsys.readouterr().out
    assert f"43.00 ± {half:.2f}" in out
    assert "3/4" in out


@pytest.mark.parametrize("flags", [[], ["--reverse"]])
def test_groups_are_sorted_by_their_mean_and_not_by_their_luckiest_seed(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, tau_beta, values in (("a", 0.1, (50.0, 50.0, 90.0)), ("b", 1.0, (80.0, 81.0, 82.0))):
        for seed, value in enumerate(values, 1):
            lines = epochs(probe_top1=[1.0, 2.0, 3.0, value])
            made_run(tmp_path / f"{name}{seed}", lines, seed=seed, tau_beta=tau_beta)
    assert main(["runs", str(tmp_path), "--group", "--json", "--sort", "probe", *flags]) == 0
    means = [round(row["probe"], 1) for row in json.loads(capsys.readouterr().out)]
    assert means == ([63.3, 81.0] if flags else [81.0, 63.3])


def judged_run(path: Path, data: str, learnability: float, test: dict[str, Any] | None = None) -> None:
    """A run on data that the label-free judge has looked at."""
    made_run(path, FULL, data=data)
    (path / "environment.json").write_text(json.dumps({} if test is None else {"test": test}))
    keep_judged(path, 40, {"cluster_learnability": learnability, "intrinsic_dimension": 8.0})


def test_runs_on_other_images_are_not_compared_by_the_judge(tmp_path: Path) -> None:
    judged_run(tmp_path / "a", "/cats/photos", 0.9)
    judged_run(tmp_path / "b", "/xrays/photos", 0.1)
    judged_run(tmp_path / "c", "/here/photos", 0.8, {"fingerprint": "f1"})
    judged_run(tmp_path / "d", "/there/photos", 0.2, {"fingerprint": "f2"})
    assert better_by_forecast(runs_below([tmp_path])) == []
    judged_run(tmp_path / "e", "/cats/photos", 0.1)
    judged_run(tmp_path / "f", "/moved/images", 0.1, {"fingerprint": "f1"})
    one, other = better_by_forecast(runs_below([tmp_path]))
    assert "of 2 judged runs on photos: a, better than e " in one
    assert "of 2 judged runs on photos: c, better than f " in other


@pytest.mark.parametrize(
    "settings", [{"subset": 100}, {"subset": 0.5}, {"method": "supervised", "noise": "symmetric", "label_noise": 0.2}]
)
def test_seeds_that_draw_the_images_or_their_labels_are_one_line(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, seed, test in (("a1", 1, "same"), ("a2", 2, "same"), ("b", 1, "other")):
        run = made_run(tmp_path / name, FULL, seed=seed, **settings)
        parts = {"train": {"fingerprint": f"{test}{seed}"}, "test": {"fingerprint": test}}
        (run / "environment.json").write_text(json.dumps(parts))
    assert main(["runs", str(tmp_path), "--group", "--json"]) == 0
    assert [row["seeds"] for row in json.loads(capsys.readouterr().out)] == [[1, 2], [1]]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"metrics.jsonl": "{no json\n"}, "damaged"),
        ({"metrics.jsonl": "[1]\n"}, "damaged"),
        ({"metrics.jsonl": '{"loss": 1}\n'}, "damaged"),
        ({"metrics.jsonl": b"\xff\xfe\n"}, "damaged"),
        ({"config.yaml": "method: simcoo\ndata: x\n"}, "did you mean 'simco'"),
        ({"config.yaml": None}, "no config.yaml"),
    ],
)
def test_a_damaged_run_is_listed_as_unreadable(
    tmp_path: Path, damage: dict, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made_run(tmp_path / "good", FULL)
    bad = made_run(tmp_path / "bad", FULL)
    for name, content in damage.items():
        if content is None:
            (bad / name).unlink()
        else:
            (bad / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    rows = {row["name"]: row for row in listed(tmp_path, capsys=capsys)}
    assert rows["bad"]["status"] == "unreadable"
    assert reason in rows["bad"]["reason"]
    assert rows["good"]["status"] == "done"


def test_damage_that_does_not_matter_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_run(tmp_path / "run", FULL)
    (run / "environment.json").write_text("[]")
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 5, "lo')  # cut short by a kill
    (row,) = listed(tmp_path, capsys=capsys)
    assert (row["status"], row["epoch"]) == ("done", 4)


def test_nothing_inside_a_run_and_nothing_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made_run(tmp_path / "a", FULL)
    made_run(run / "logs" / "inner", FULL)
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "same").symlink_to(run)
    (tmp_path / "to itself").symlink_to(tmp_path / "to itself")
    (tmp_path / "other project").mkdir()
    (tmp_path / "other project" / "config.yaml").write_text("whatever: 1\n")
    assert list(find_runs(tmp_path)) == [run]
    assert [row["name"] for row in listed(tmp_path, capsys=capsys)] == ["a"]
    assert [row["status"] for row in listed(run, tmp_path, capsys=capsys)] == ["done"]
    assert len(listed(run, capsys=capsys)) == 1


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("name", ["a", "broken", "c", "d", "deep/er/b"]),
        ("probe", ["d", "a", "deep/er/b", "c", "broken"]),
        ("epoch", ["a", "d", "deep/er/b", "c", "broken"]),
        ("method", ["c", "deep/er/b", "a", "d", "broken"]),
        ("tau-beta", ["d", "a", "deep/er/b", "broken", "c"]),
    ],
)
def test_runs_are_sorted_and_those_without_a_value_come_last(
    folder: Path, by: str, order: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert [row["name"] for row in listed(folder, "--sort", by, capsys=capsys)] == order


def test_dates_are_those_of_the_last_epoch_newest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, age in (("old", 5000), ("new", 10), ("middle", 400)):
        metrics = made_run(tmp_path / name, FULL) / "metrics.jsonl"
        moved = time.time() - age
        os.utime(metrics, (moved, moved))
    assert [row["name"] for row in listed(tmp_path, "--sort", "date", capsys=capsys)] == ["new", "middle", "old"]
    backwards = listed(tmp_path, "--sort", "date", "--reverse", capsys=capsys)
    assert [row["name"] for row in backwards] == ["old", "middle", "new"]


def test_a_run_whose_folder_is_held_is_running(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(folder / "deep/er/b" / ".lock"):
        rows = {row["name"]: row["status"] for row in listed(folder, capsys=capsys)}
    assert rows["deep/er/b"] == "running"


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err
    assert main(["runs", str(tmp_path), "--sort", "colour"]) == 2
    assert "choose among name" in capsys.readouterr().err
    assert main(["runs", str(tmp_path)]) == 0
    assert "no runs below" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("runs",), ("runs", "--help"), ("report", "--help"), ("report", "a", "--no-pictures")]
)
def test_lists_and_pages_do_not_import_torch(tmp_path: Path, words: tuple[str, ...]) -> None:
    made_run(tmp_path / "runs" / "a", FULL)
    given = [str(tmp_path / "runs" / "a") if word == "a" else word for word in words]
    command = [sys.executable, "-X", "importtime", "-m", "dualtemp", *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "dualtemp.cli" in imported
    assert not imported & {"torch", "torchvision", "numpy", "PIL.Image"}
