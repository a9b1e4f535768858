"""Results are shown as those of the data they are of, whatever its folder is called."""

from pathlib import Path
from typing import Any

import pytest
from grids.test_results import saved_set

from dualtemp.cli import main
from dualtemp.errors import UserError
from dualtemp.grids.known_data import display_name, known_facts, set_name
from dualtemp.grids.results import DataFacts, Results, read_data_facts
from dualtemp.grids.tables import collect_results, make_jobs
from dualtemp.paper.reproduce import Request

GENUINE = DataFacts("aaaaaaaa0000", 32, 50_000, "cifar10")


def write_results(request: Request, facts: dict[str, DataFacts], accuracy: float) -> None:
    for job in make_jobs(request.make_plan(), request.seeds, facts).values():
        Results(request.results).write(job, {"status": "done", "metrics": {"probe_top1": accuracy}})


def accuracies(request: Request) -> set[float]:
    found, results = request.make_plan(), Results(request.results)
    there = collect_results(found, request.seeds, known_facts(found, results), results)
    return {value for cell in there.tables["T-reverse"].values() for value in cell.values.values()}


def request_of(results: Path, *data: str) -> Request:
    return Request(["T-reverse"], "mini", (1,), data, results)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder that is called like a set."""
    return str(saved_set(tmp_path / "some" / "cifar10"))


def test_a_folder_that_is_called_like_a_set_is_not_shown_as_the_set(tmp_path: Path, folder: str) -> None:
    results = tmp_path / "results"
    write_results(request_of(results, folder), {folder: read_data_facts(folder)}, 20.0)
    assert accuracies(request_of(results)) == set()
    write_results(request_of(results), {"cifar10": GENUINE}, 50.0)
    write_results(request_of(results, folder), {folder: read_data_facts(folder)}, 30.0)  # the newest
    assert accuracies(request_of(results)) == {50.0}
    assert accuracies(request_of(results, "CIFAR-10")) == {50.0}
    assert accuracies(request_of(results, folder)) == {30.0}
    digits = read_data_facts(folder).fingerprint
    assert accuracies(request_of(results, digits)) == {30.0}
    assert accuracies(request_of(results, f"cifar10={digits[:8]}")) == {30.0}


def test_two_folders_of_one_name_are_two_sets(tmp_path: Path) -> None:
    results, (first, second) = (
        tmp_path / "results",
        (str(saved_set(tmp_path / place / "mine", images)) for place, images in (("a", 150), ("b", 200))),
    )
    write_results(request_of(results, first), {first: read_data_facts(first)}, 10.0)
    write_results(request_of(results, second), {second: read_data_facts(second)}, 20.0)
    assert accuracies(request_of(results, first)) == {10.0}
    assert accuracies(request_of(results, second)) == {20.0}
    moved = Path(first).rename(tmp_path / "elsewhere")
    assert accuracies(request_of(results, str(moved))) == {10.0}


def test_results_of_two_contents_of_one_set_are_not_mixed(tmp_path: Path) -> None:
    write_results(request_of(tmp_path), {"cifar10": GENUINE}, 50.0)
    other = DataFacts("bbbbbbbb0000", 32, 50_000, "cifar10")
    write_results(request_of(tmp_path), {"cifar10": other}, 60.0)
    with pytest.raises(UserError, match=r"aaaaaaaa \(8 runs\), bbbbbbbb \(8 runs\); choose with --data cifar10="):
        accuracies(request_of(tmp_path))
    assert accuracies(request_of(tmp_path, "cifar10=bbbbbbbb")) == {60.0}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "nowhere"], "nowhere: no set, folder or file has this name"),
        (
            ["--data", "cifar10=cccccccc"],
            "no data among the results here has this fingerprint; available: aaaaaaaa",
        ),
    ],
)
def test_data_that_is_not_there_is_one_line(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(request_of(tmp_path), {"cifar10": GENUINE}, 50.0)
    for written in (["--no-times"], ["--summary", str(tmp_path / "summary.md")]):
        assert main(["paper", "T-reverse", "--results", str(tmp_path), *words, *written]) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
    assert not (tmp_path / "summary.md").exists()


def test_a_summary_of_other_data_says_what_the_results_are_of(
    tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[Any]
) -> None:
    write_results(request_of(tmp_path / "results"), {"cifar10": GENUINE}, 50.0)
    words = ["--results", str(tmp_path / "results"), "--summary", str(tmp_path / "summary.md")]
    assert main(["paper", "T-reverse", "--scale", "mini", "--data", folder, *words]) == 0
    assert "there are: aaaaaaaa cifar10 (8 runs)" in capsys.readouterr().err
    assert main(["paper", "T-reverse", "--scale", "mini", "--data", "cifar10=aaaaaaaa", *words]) == 0
    assert capsys.readouterr().err == ""
    text = (tmp_path / "summary.md").read_text()
    assert "--data cifar10=FOLDER\n\n8 runs" in text
    assert "on cifar10 (aaaaaaaa)." in text


def test_a_path_is_no_sets_name(tmp_path: Path) -> None:
    words = {"cifar10": "cifar10", "CIFAR-10": "cifar10", "./cifar10": None, "a/cifar10": None, "cifar10.npz": None}
    assert {word: set_name(word) for word in words} == words
    assert display_name("./cifar10", DataFacts("0123456789", 32, 1), Results(tmp_path)) == "cifar10 (01234567)"
