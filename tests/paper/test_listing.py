import json
import subprocess
import sys
from pathlib import Path

import pytest

from dualtemp.grids.cost import count_passes, expected_seconds
from dualtemp.grids.measured_step import measured_step
from dualtemp.grids.missing import find_missing
from dualtemp.grids.plan import PlannedRun
from dualtemp.grids.results import Results
from dualtemp.paper.listing import print_listing
from dualtemp.paper.reproduce import Request


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path / "cache"


def test_every_artifact_is_listed_with_its_runs_and_what_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = Request(["all"], "smoke", (1, 2), results=tmp_path / "results")
    jobs = find_missing(
        Request(["T-reverse"], "smoke", (1,), results=tmp_path), Request(["T-reverse"], "smoke").make_plan()
    ).jobs
    for job in jobs[:3]:
        Results(request.results).write(job, {"status": "done", "metrics": {}})
    print_listing(request, times=False)
    told = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in told.splitlines() if line.strip()}
    assert rows["T-reverse"][-2:] == ["16", "3"]
    assert rows["T-unified"][-2:] == ["16", "2"]  # two of these are its own
    assert rows["F-frameworks"][-2:] == ["0", "0"]
    assert "162 runs, of which 3 are done" in told


def test_the_time_left_comes_from_a_step_measured_once(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = Request(["T-reverse"], "smoke", (1,), results=tmp_path)
    print_listing(request)
    measured = json.loads((cache / "steps.json").read_text())
    assert set(measured) == {"resnet_mini 8 px 1", "a small run"}
    assert 0 < measured["resnet_mini 8 px 1"] < 1
    assert measured["a small run"] > 0
    assert " s" in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("T-reverse"))
    (cache / "steps.json").write_text(json.dumps({**measured, "resnet_mini 8 px 1": 3600.0}))
    print_listing(request)
    assert "days" in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("T-reverse"))


def test_a_retired_scale_is_not_said_to_be_run_and_no_times_are_spoken_of_where_none_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_listing(Request(["T-reverse"], "long", results=tmp_path), times=False)
    told = capsys.readouterr().out
    assert "This scale is retired, and nothing more is run at it: length alone is no remedy" in told
    assert "runs what is missing" not in told
    assert "Times are for" not in told
    print_listing(Request(["T-reverse"], "mini", results=tmp_path), times=False)
    assert "`dualtemp reproduce ID --scale mini` runs what is missing." in capsys.readouterr().out


def test_small_runs_take_what_any_run_takes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.mkdir()
    (cache / "steps.json").write_text(json.dumps({"resnet_mini 8 px 1": 0.0, "a small run": 30.0}))
    monkeypatch.setattr("dualtemp.paper.listing.cores", lambda: 2)
    print_listing(Request(["T-reverse"], "smoke", (1,), results=tmp_path))
    assert "8 runs, of which 0 are done, about 2 min left" in capsys.readouterr().out


def test_a_run_costs_its_passes() -> None:
    def cost(method: str, **other: object) -> float:
        values = {"data": "cifar10", "method": method, "epochs": 2, "batch": 100, "subset": 1050, **other}
        return count_passes(PlannedRun("", values, ()).with_seed(1), 50_000)

    assert cost("supervised") == 2 * 1000 * 3  # forward and backward; the images that fill no batch are dropped
    assert cost("moco") == cost("simmoco") == 2 * 1000 * 4
    assert cost("moco", symmetric=True) == cost("byol") == 2 * cost("moco")
    assert cost("simco") == cost("simsiam") == 2 * 1000 * 6


def test_of_a_set_that_is_not_known_no_time_is_told() -> None:
    assert expected_seconds(PlannedRun("", {"data": "some/folder"}, ()).with_seed(1)) is None


def test_listing_needs_no_torch() -> None:
    program = (
        "import sys; from dualtemp.cli import main; assert main(['paper', '--no-times']) == 0;"
        "main(['reproduce', '--help']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_former_name_of_the_measured_step_still_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="measured_step is now measure_step"):
        assert measured_step("resnet_mini", 8, 1) > 0
