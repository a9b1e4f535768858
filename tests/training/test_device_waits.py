"""Training on a CUDA device, pretended where there is none: nothing of a step mixes devices or waits for one."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_photos import draw_photos

import dualtemp
from dualtemp.frameworks import frameworks

HERE = Path(__file__).parents[1] / "support" / "pretended_cuda"
QUICK = {"data": "digits", "backbone": "resnet_mini", "epochs": 1, "batch": 32, "subset": 96, "knn_images": 50}
RUNS: dict[str, dict[str, Any]] = {
    **{method: {"method": method, **QUICK} for method in frameworks()},
    "moco": {"method": "moco", "dictionary_size": 64, **QUICK},
    "memory": {"method": "simco", "weight": "memory", **QUICK},
    "temperatures of images": {"method": "simclr", "weight": "per_image", **QUICK},
    "adaptive temperature": {"method": "simco", "weight": "equal", "temperature_schedule": "adaptive", **QUICK},
    "chunks": {"chunk": 8, "clip_gradient": 1.0, "recipe": "byol", **QUICK},
    "photographs": {**QUICK, "image_size": 16, "batch": 8, "subset": 24, "workers": 0},
}


@pytest.fixture(scope="module")
def guard(request: pytest.FixtureRequest) -> Path:
    """The library of guard.cpp, built once for a version of torch and kept in pytest's cache."""
    compiler, source, home = shutil.which("g++"), HERE / "guard.cpp", Path(torch.__file__).parent
    if compiler is None:
        pytest.skip("no g++ to build the pretended device with")
    assert request.config.cache is not None
    key = hashlib.sha256(f"{torch.__version__} {home} {source.read_text()}".encode()).hexdigest()[:16]
    built = Path(request.config.cache.mkdir("pretended_cuda")) / f"guard-{key}.so"
    if not built.exists():
        part = built.with_suffix(f".{os.getpid()}")
        include = (home / "include", home / "include" / "torch" / "csrc" / "api" / "include")
        words = [compiler, "-std=c++20", "-O0", "-fPIC", "-shared", *(f"-I{each}" for each in include), str(source)]
        words += [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{home / 'lib'}", "-o", str(part)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"the pretended device does not fit torch {torch.__version__}: {done.stderr[-300:]}")
        part.rename(built)
    return built


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    photographs = tmp_path_factory.mktemp("photographs")
    for label in (0, 1):
        draw_photos(photographs / str(label), 20, 20 * label, ".jpg")  # of different sizes: they stay in files
    return {**RUNS, "photographs": {**RUNS["photographs"], "data": str(photographs)}}


@pytest.fixture(scope="module")
def noted(guard: Path, runs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was noted in each run; all in one process, since torch believes in the device from then on."""
    if torch.cuda.is_available():
        pytest.skip("torch has CUDA, which cannot be pretended beside it")
    done = subprocess.run(
        [sys.executable, HERE / "train.py", guard, tmp_path_factory.mktemp("runs")],
        input=json.dumps(runs),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_pretended_device_sees_waits_and_mixed_devices(noted: dict[str, Any]) -> None:
    assert "cuda:0 and CPU [(2,)]" in noted["mistakes"]["error"]
    assert sum(noted["mistakes"]["waits"].values()) == 3


@pytest.mark.parametrize("name", RUNS)
def test_a_step_never_waits_for_the_device_and_copies_once(name: str, noted: dict[str, Any]) -> None:
    found = noted[name]
    assert found["error"] is None
    assert found["steps"] == 2
    assert found["waits"] == {}
    assert found["copies"] == dict.fromkeys(found["copies"], found["steps"])
    assert len(found["copies"]) == 1


@pytest.mark.parametrize("name", ["simco", "photographs"])
def test_the_device_sees_the_same_views_as_the_cpu(
    name: str, noted: dict[str, Any], runs: dict[str, Any], tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    on_cpu = dualtemp.train(**runs[name], out=str(tmp_path / "run"), device="cpu", page=False, quiet=True)
    torch.set_num_threads(threads)
    assert noted[name]["loss"] == on_cpu["loss"]
