"""Training on a CUDA device, pretended where there is none: nothing of a step mixes devices or waits for one."""

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from drawn_photos import draw_photos
from local_starts import write_timm_folder
from pydantic.fields import FieldInfo

import dualtemp
from dualtemp.frameworks import frameworks
from dualtemp.self_test.parity import CASES

pytestmark = pytest.mark.slow  # the runs of all frameworks, and a library to build

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
    "distil": {"method": "distil", **QUICK},
    "plugin": {"method": "invariance", **QUICK},
}
BASE: dict[str, dict[str, Any]] = {"moco": {"dictionary_size": 64}}
PLUGIN = Path(__file__).parents[2] / "docs" / "examples" / "my_framework.py"
# Values to try of settings whose type does not tell them, and what else a value needs.
VALUES: dict[str, list[Any]] = {"tau_beta": ["tied", math.inf], "vector_size": [32], "scalar_size": [32]}
NEEDS: dict[str, dict[str, Any]] = {
    "vector_sampling": {"vector_size": 32},
    "scalar_sampling": {"scalar_size": 32},
    "noise": {"label_noise": 0.2},
    "tau_weight": {"hardness_aware": True},
}


def other_values(name: str, field: FieldInfo) -> list[Any]:
    """What a setting can be beside its default; of numbers, one."""
    if name in VALUES:
        return [value for value in VALUES[name] if value != field.default]
    if field.annotation is bool:
        return [not field.default]
    if get_origin(field.annotation) is Literal:
        return [value for value in get_args(field.annotation) if value != field.default]
    return [field.default / 2 or 0.5] if field.annotation is float else []


def every_option() -> dict[str, dict[str, Any]]:
    """A run for each value of each setting of each framework that settings allow."""
    found = {}
    for method, declared in frameworks().items():
        for name, field in declared.Settings.model_fields.items():
            for value in other_values(name, field):
                chosen = {**BASE.get(method, {}), **NEEDS.get(name, {}), name: value}
                settings = declared.Settings(**chosen)
                idle = settings.without_effect()
                chosen = {key: each for key, each in chosen.items() if key not in idle}
                if name in chosen and not settings.contradiction():
                    found[f"{method}, {name} {value}"] = {"method": method, **QUICK, **chosen}
    return found


OPTIONS = every_option()


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
    return {
        **RUNS,
        "photographs": {**RUNS["photographs"], "data": str(photographs)},
        "plugin": {**RUNS["plugin"], "plugin": str(PLUGIN)},
    }


def train_on_pretended_device(guard: Path, runs: dict[str, Any], out: Path) -> dict[str, Any]:
    """What was noted in each run; all in one process, since torch believes in the device from then on."""
    if torch.cuda.is_available():
        pytest.skip("torch has CUDA, which cannot be pretended beside it")
    teacher = str(write_timm_folder(out.with_name(f"{out.name} teacher")))
    runs = {name: {**run, "teacher": teacher} if run.get("method") == "distil" else run for name, run in runs.items()}
    done = subprocess.run(
        [sys.executable, HERE / "train.py", guard, out],
        input=json.dumps(runs),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def noted(guard: Path, runs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train_on_pretended_device(guard, runs, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def noted_options(guard: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return train_on_pretended_device(guard, OPTIONS, tmp_path_factory.mktemp("options"))


def require_no_wait_and_one_copy(found: dict[str, Any], copies: int = 1) -> None:
    assert found["error"] is None
    assert found["steps"] == 2
    assert found["waits"] == {}
    assert found["copies"] == dict.fromkeys(found["copies"], found["steps"])
    assert len(found["copies"]) == copies


def test_the_pretended_device_sees_waits_and_mixed_devices(noted: dict[str, Any]) -> None:
    assert "cuda:0 and CPU [(2,)]" in noted["mistakes"]["error"]
    assert sum(noted["mistakes"]["waits"].values()) == 3


@pytest.mark.parametrize("name", RUNS)
def test_a_step_never_waits_for_the_device_and_copies_once(name: str, noted: dict[str, Any]) -> None:
    require_no_wait_and_one_copy(noted[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_no_option_of_a_framework_makes_a_step_wait_or_copy_twice(name: str, noted_options: dict[str, Any]) -> None:
    drawn = "sampling random" in name  # which keys of the dictionary are drawn on the host
    require_no_wait_and_one_copy(noted_options[name], copies=2 if drawn else 1)


def test_options_of_every_framework_are_tried() -> None:
    tried = {run["method"] for run in OPTIONS.values()}
    assert tried == {name for name, declared in frameworks().items() if declared.Settings.model_fields}
    assert "simco, tau_beta inf" in OPTIONS
    assert "moco, keys current" in OPTIONS


@pytest.mark.parametrize("name", CASES)
def test_no_loss_waits_for_the_device_or_leaves_it(name: str, noted: dict[str, Any]) -> None:
    assert noted["losses"][name] == {"error": None, "waits": {}, "learned": True}
    devices = noted["fake losses"][name]
    assert devices == ["cuda:0"] * len(devices)
    assert len(devices) >= 2  # a value and a gradient


@pytest.mark.parametrize("name", ["simco", "photographs"])
def test_the_device_sees_the_same_views_as_the_cpu(
    name: str, noted: dict[str, Any], runs: dict[str, Any], tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    on_cpu = dualtemp.train(**runs[name], out=str(tmp_path / "run"), device="cpu", page=False, quiet=True)
    torch.set_num_threads(threads)
    assert noted[name]["loss"] == on_cpu["loss"]
