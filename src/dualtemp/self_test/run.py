"""The self-test of a device: parity, speed and memory by every way to compute a loss, as one report."""

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from dualtemp.kernels import choice
from dualtemp.self_test.parity import CASES, Parity, compare
from dualtemp.self_test.speed import Task, forecast_bytes, milliseconds, peak_bytes, run_once

SCHEMA = 1
PLAIN, TILES, FUSED = "plain formula", "tiles", "fused kernels"
# Shapes of the parity: several blocks of the kernels and parts of blocks, keys divided among programs.
PARITY_SHAPES = {"device": ((200, 1000, 128), (65, 130, 200)), "dry": ((18, 34, 12),)}
TASKS = {
    "device": (*(Task(n, None, 128) for n in (256, 1024, 4096, 16384)), Task(256, 65536, 128)),
    "dry": (Task(16, None, 8), Task(16, 32, 8)),
}
WHOLE_MATRICES = 1 << 27  # elements up to which the plain formula is tried: half a GiB each
MEMORY = ("peak_bytes", "forecast_bytes", "within_forecast")
MEMORY_SLACK = 32 << 20  # bytes: workspaces of the libraries that multiply


def run_self_test(device: torch.device, dry: bool, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Return the report on a device, which docs/gpu.md describes. `dry` takes tiny shapes, for the CPU.

    say: is told of each part as it is done.
    """
    if device.type == "cpu" and choice.installed() and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is loaded
    size = "dry" if dry else "device"
    paths = [TILES, *([FUSED] if _fused_can_run(device) else [])]
    parity = [row for path in paths for row in _parity(path, device, PARITY_SHAPES[size], say)]
    speed, memory = [], []
    for task in TASKS[size]:
        about = {"loss": task.name, "anchors": task.anchors, "keys": task.keys, "width": task.width}
        for path in (PLAIN, *paths):
            if path == PLAIN and task.anchors * (task.keys or task.anchors) > WHOLE_MATRICES:
                continue
            measured = _measure(task, path, device, 1 if dry else 10)
            speed.append({**about, "path": path, **{key: measured[key] for key in ("milliseconds", "error")}})
            memory.append({**about, "path": path, **{key: measured[key] for key in MEMORY}})
            say(f"{task.name} {task.anchors} x {task.keys or task.anchors}, {path}: {_told(measured)}")
    failed = [row for row in speed if row["error"]]
    passed = {path: all(row["passed"] for row in parity if row["path"] == path) for path in paths}
    passed = {path: good and not any(row["path"] == path for row in failed) for path, good in passed.items()}
    return {
        "schema": SCHEMA,
        "dry_run": dry,
        "passed": all(passed.values()),
        "passed_paths": [path for path in paths if passed[path]],
        "versions": versions(),
        "device": describe(device),
        "parity": parity,
        "speed": speed,
        "memory": memory,
    }


def versions() -> dict[str, str | None]:
    """Versions of what computes; None where it is not installed."""
    from dualtemp import __version__

    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = None
    return {
        "dualtemp": __version__,
        "torch": torch.__version__,
        "triton": triton,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def describe(device: torch.device) -> dict[str, Any]:
    """What the device is; of the CPU its kind alone."""
    if device.type != "cuda":
        return {"kind": device.type}
    about = torch.cuda.get_device_properties(device)
    return {
        "kind": "cuda",
        "name": about.name,
        "capability": f"{about.major}.{about.minor}",
        "memory_bytes": about.total_memory,
        "multiprocessors": about.multi_processor_count,
    }


@contextmanager
def computed_by(path: str) -> Iterator[None]:
    """Inside, losses are computed by the fused kernels, or by tiles."""
    before = os.environ.get(choice.SWITCH)
    os.environ[choice.SWITCH] = "1" if path == FUSED else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[choice.SWITCH]
        else:
            os.environ[choice.SWITCH] = before


def _fused_can_run(device: torch.device) -> bool:
    return choice.installed() and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def _parity(
    path: str, device: torch.device, shapes: tuple[tuple[int, int, int], ...], say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    for name, case in CASES.items():
        for shape in shapes:
            error = None
            try:
                with computed_by(path):
                    found = compare(case, device, *shape)
            except Exception as failure:
                found, error = Parity(float("nan"), float("nan")), _one_line(failure)
            yield {
                "loss": name,
                "path": path,
                "shape": list(shape),
                "value": _number(found.value),
                "gradient": _number(found.gradient),
                "passed": found.passed,
                "error": error,
            }
            if not found.passed:
                say(f"{name} {shape}, {path}: {error or f'off by {max(found):.3g} of what is allowed'}")


def _measure(task: Task, path: str, device: torch.device, repeats: int) -> dict[str, Any]:
    try:
        with computed_by(path):
            step = run_once(task, device, plain=path == PLAIN)
            taken, peak = milliseconds(step, device, repeats), peak_bytes(step, device)
    except Exception as failure:
        return dict.fromkeys(("milliseconds", *MEMORY)) | {"error": _one_line(failure)}
    forecast = forecast_bytes(task, path, device)
    fits = None if peak is None else peak <= forecast + MEMORY_SLACK
    return dict(zip(MEMORY, (peak, forecast, fits), strict=True)) | {"milliseconds": taken, "error": None}


def _told(measured: dict[str, Any]) -> str:
    if measured["error"]:
        return measured["error"]
    memory = "" if measured["peak_bytes"] is None else f", {measured['peak_bytes'] / 2**20:.0f} MiB"
    return f"{measured['milliseconds']:.3g} ms{memory}"


def _number(x: float) -> float | None:
    """JSON knows no nan and no infinity."""
    return x if x == x and abs(x) != float("inf") else None


def _one_line(failure: Exception) -> str:
    """An error without the paths that it may name: a report can be shown to everybody."""
    first = (str(failure).strip().splitlines() or [""])[0]
    without_paths = re.sub(r"[^ ]*[/\\][^ ]*", "...", first)
    return f"{type(failure).__name__}: {without_paths}"[:200]
