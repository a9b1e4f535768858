"""The summary of synthetic results whose outcome is known."""

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from dualtemp.cli import main
from dualtemp.grids.results import DataFacts, Job, Results
from dualtemp.grids.tables import make_jobs
from dualtemp.paper.reproduce import Request
from dualtemp.paper.summary import write_paper_summary

FACTS = {"cifar10": DataFacts("cifar10", 32, 50_000, "cifar10")}
SEEDS = (1, 2, 3)


def accuracy(job: Job) -> float:
    s = job.settings
    return 40.0 + 5.0 * (s.get("tau_alpha") == 0.1) + 3.0 * (s.get("tau_beta") == 1.0) + 0.1 * s.seed


@pytest.fixture
def request_of_reverse(tmp_path: Path) -> Request:
    request = Request(["T-reverse"], "mini", SEEDS, results=tmp_path / "results")
    results = Results(request.results)
    for job in make_jobs(request.make_plan(), SEEDS, FACTS).values():
        result = {"status": "done", "metrics": {"probe_top1": accuracy(job)}, "seconds": 900.0}
        results.write(job, result)
    return request


def test_the_summary_tells_verdict_effect_interval_and_time(request_of_reverse: Request, tmp_path: Path) -> None:
    write_paper_summary(request_of_reverse, tmp_path / "new" / "summary.md")
    text = (tmp_path / "new" / "summary.md").read_text()
    assert text.startswith("24 runs, 6.0 hours of computing at scale `mini`.")
    assert "| C1 | DT(.1, 1) beats ST(.1), in SimMoCo and in SimCo | **holds** | 2 of 2 | 2 |" in text
    assert (
        "\n    dualtemp reproduce T-reverse --scale mini --seeds 3\n\n24 runs, 6.0 hours of computing, on cifar10.\n"
        in text
    )
    row = next(line for line in text.splitlines() if "| SimCo | DT .1, 1 > ST .1 |" in line)
    assert "+3.00 (+2.8" in row
    assert row.endswith("| 6 | holds |")
    by_seed = row.split("|")[6].strip()  # seeds differ, and cells by the same within each: nothing is left beside seeds
    assert by_seed.startswith("+3.00")
    mean = fmean(48.0 + 0.1 * seed for seed in SEEDS)
    assert f"{mean:.2f} \u00b1 0.10 [3]" in text
    assert "C3" not in text


def test_what_was_not_run_is_undecided_and_said(request_of_reverse: Request, tmp_path: Path) -> None:
    jobs = make_jobs(request_of_reverse.make_plan(), SEEDS, FACTS).values()
    for job in jobs:
        if job.settings.method == "simco" and job.settings.options.tau_alpha == 1.0:
            (request_of_reverse.results / f"{job.name}.json").unlink()
    write_paper_summary(request_of_reverse, tmp_path / "summary.md")
    text = (tmp_path / "summary.md").read_text()
    assert "**holds** |" in text.split("| C2 |")[0]
    assert "| C2 | ST(1) and DT reverse are far below both | **undecided** | 4 of 8, 4 not compared | 4 |" in text
    assert "ST 1: not run" in text


def test_the_command_names_the_seeds_that_every_cell_has(request_of_reverse: Request, tmp_path: Path) -> None:
    jobs = list(make_jobs(request_of_reverse.make_plan(), SEEDS, FACTS).values())
    (request_of_reverse.results / f"{next(job.name for job in jobs if job.settings.seed == 2)}.json").unlink()
    write_paper_summary(replace(request_of_reverse, data=["cifar10"]), tmp_path / "summary.md")
    command = "dualtemp reproduce T-reverse --scale mini --seeds 1,3, --data cifar10"
    assert f"\n    {command}\n\n23 runs" in (tmp_path / "summary.md").read_text()


def test_the_command_keeps_no_place_of_images_even_if_it_has_an_equals_sign(
    request_of_reverse: Request, tmp_path: Path
) -> None:
    images = tmp_path / "version=2"
    images.mkdir()
    facts = {str(images): FACTS["cifar10"]}
    for data, shown in ((str(images), "FOLDER"), (f"cifar10={images}", "cifar10=FOLDER")):
        write_paper_summary(replace(request_of_reverse, data=[data]), tmp_path / "summary.md", facts)
        text = (tmp_path / "summary.md").read_text()
        assert f" --data {shown}\n" in text
        assert str(tmp_path) not in text


def test_a_folder_in_the_place_of_the_file_is_one_line(
    request_of_reverse: Request, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["paper", "T-reverse", "--results", str(request_of_reverse.results), "--summary", str(tmp_path)]
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_that_is_not_there_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--results", str(tmp_path / "mistyped"), "--summary", str(tmp_path / "summary.md")]
    assert main(["paper", "T-reverse", *words]) == 2
    assert "mistyped: no such folder" in capsys.readouterr().err
    assert not (tmp_path / "summary.md").exists()
