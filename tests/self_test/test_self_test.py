"""`dualtemp doctor --gpu`: what a person with a GPU runs once, here as its dry run on the CPU."""

import json
import math
import os
import platform
from pathlib import Path
from typing import Any

import pytest
import torch

from dualtemp import losses
from dualtemp.cli import main
from dualtemp.commands import doctor
from dualtemp.kernels import choice
from dualtemp.self_test import parity, run, speed

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Written by the command."""
    folder = tmp_path_factory.mktemp("self_test")
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("DUALTEMP_DATA", str(folder))
        patched.delenv("DUALTEMP_TRITON", raising=False)
        assert main(["doctor", "--gpu", "--device", "cpu"]) == 0
        assert not choice.marks_file().exists()  # the CPU has nothing to pass
    return json.loads((folder / "dualtemp-gpu.json").read_text())


def test_a_dry_run_compares_every_loss_by_every_path(report: dict[str, Any]) -> None:
    paths = ["tiles", *(["fused kernels"] if choice.installed() else [])]
    functions = {name for name in losses.__all__ if name.islower()}
    assert functions <= {row["loss"].partition(",")[0] for row in report["parity"]}
    assert {(row["loss"], row["path"]) for row in report["parity"]} == {(x, y) for x in parity.CASES for y in paths}
    assert all(row["passed"] and row["value"] <= 1 and row["gradient"] <= 1 for row in report["parity"])
    assert report["passed"]
    assert report["passed_paths"] == paths
    assert report["dry_run"]
    assert report["schema"] == 1


def test_a_dry_run_times_every_path_and_forecasts_its_memory(report: dict[str, Any]) -> None:
    paths = ["plain formula", *report["passed_paths"]]
    tasks = [(task.name, path) for task in run.TASKS["dry"] for path in paths]
    assert [(row["loss"], row["path"]) for row in report["speed"]] == tasks
    assert all(row["milliseconds"] > 0 and row["error"] is None for row in report["speed"])
    assert [(row["loss"], row["path"]) for row in report["memory"]] == tasks
    assert all(row["forecast_bytes"] > 0 and row["peak_bytes"] is None for row in report["memory"])


def test_a_report_names_no_folder_and_no_host(report: dict[str, Any]) -> None:
    text = json.dumps(report)
    assert "/" not in text
    assert platform.node() not in text


def test_without_a_gpu_it_says_what_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    out = tmp_path / "report.json"
    assert main(["doctor", "--gpu", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no GPU to test" in said
    assert "--device cpu" in said
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "x.json"], "--out goes with --gpu"),
        (["--device", "cpu"], "--device goes with --gpu"),
        (["--gpu", "--device", "cpu", "--out", "no/such/x.json"], "no/such is no folder"),
        (["--gpu", "--device", "teapot"], "no device is called 'teapot'"),
    ],
)
def test_mistakes_are_one_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    assert told in capsys.readouterr().err


def test_a_wrong_loss_fails_and_a_rounded_product_too(monkeypatch: pytest.MonkeyPatch) -> None:
    case = parity.CASES["dual_temperature"]
    assert parity.compare(case, CPU, 12, 20, 8).passed

    def rounded(q: torch.Tensor, k: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        if q.dtype == torch.float32:  # as TF32 rounds: 10 bits
            q, k = (torch.nn.functional.normalize(x, dim=1).bfloat16().float() for x in (q, k))
        return case.loss(q, k, keys)

    assert not parity.compare(case._replace(loss=rounded), CPU, 12, 20, 8).passed
    off = case._replace(loss=lambda q, k, x: case.loss(q, k, x) * (1.001 if q.dtype == torch.float32 else 1))
    assert not parity.compare(off, CPU, 12, 20, 8).passed
    nan = case._replace(loss=lambda q, k, x: case.loss(q, k, x) * (math.nan if q.dtype == torch.float32 else 1))
    assert not parity.compare(nan, CPU, 12, 20, 8).passed


@pytest.mark.parametrize("spoiled", [0, 1, 2])
def test_a_gradient_that_is_nan_fails_whichever_argument_it_is_of(spoiled: int) -> None:
    case = parity.CASES["info_nce"]

    def with_nan(*given: torch.Tensor) -> torch.Tensor:
        if given[0].dtype == torch.float32:
            given[spoiled].register_hook(lambda gradient: gradient * math.nan)
        return case.loss(*given)

    assert not parity.compare(case._replace(loss=with_nan), CPU, 12, 20, 8).passed


def test_a_failing_path_is_reported_without_paths_and_gets_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> parity.Parity:
        raise RuntimeError("cannot read /home/ada/secret.cubin\nand more")

    monkeypatch.setattr(run, "compare", broken)
    monkeypatch.setattr(run, "TASKS", {"dry": ()})
    monkeypatch.setattr(choice, "installed", lambda: False)
    said: list[str] = []
    report = run.run_self_test(CPU, dry=True, say=said.append)
    assert not report["passed"]
    assert report["passed_paths"] == []
    assert report["parity"][0]["error"] == "RuntimeError: cannot read ..."
    assert len(said) == len(parity.CASES)
    json.dumps(report, allow_nan=False)


def test_the_plain_formula_that_is_timed_is_the_loss() -> None:
    q, k, keys = (torch.randn(n, 8, generator=torch.Generator().manual_seed(n)).double() for n in (9, 9, 20))
    torch.testing.assert_close(speed.plain_dual_temperature(q, k), losses.dual_temperature(q, k))
    torch.testing.assert_close(speed.plain_info_nce(q, k, keys), losses.info_nce(q, k, keys))


def test_the_forecast_grows_with_the_batch_and_not_with_its_square_unless_plain() -> None:
    small, large = (speed.Task(n, None, 128) for n in (1 << 14, 1 << 15))
    growth = {
        path: speed.forecast_bytes(large, path, CPU) / speed.forecast_bytes(small, path, CPU)
        for path in (run.PLAIN, run.TILES, run.FUSED)
    }
    assert growth[run.PLAIN] > 3.5
    assert growth[run.TILES] < 2.1
    assert growth[run.FUSED] < 2.1


def test_the_switch_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("0", "1", None):
        if before is None:
            monkeypatch.delenv(choice.SWITCH)
        else:
            monkeypatch.setenv(choice.SWITCH, before)
        for path, inside in ((run.FUSED, "1"), (run.TILES, "0")):
            with run.computed_by(path):
                assert os.environ[choice.SWITCH] == inside
            assert os.environ.get(choice.SWITCH) == before


def test_a_gpu_that_passed_uses_the_kernels_and_one_that_failed_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = torch.device("cuda:0")
    monkeypatch.setenv("DUALTEMP_DATA", str(tmp_path))
    monkeypatch.delenv(choice.SWITCH, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(choice, "installed", lambda: False)
    assert "pip install" in doctor._consequence(gpu, {"passed_paths": [run.TILES]})
    monkeypatch.setattr(choice, "installed", lambda: True)
    assert "failed" in doctor._consequence(gpu, {"passed_paths": [run.TILES]})
    assert not choice.available(gpu)
    assert "passed" in doctor._consequence(gpu, {"passed_paths": [run.TILES, run.FUSED]})
    assert choice.available(gpu)
