"""`dualtemp doctor`: print versions, devices, threads and the data cache, try a small step, or test a GPU."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualtemp.commands.command import Command, Group
from dualtemp.errors import UserError

if TYPE_CHECKING:
    import torch

REPORT = "dualtemp-gpu.json"
PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "pydantic", "safetensors")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--gpu", action="store_true", help="test a GPU: correctness, speed and memory of the losses")
    parser.add_argument("--device", metavar="NAME", help="with --gpu: cuda:1, ...; cpu is a dry run (default: cuda)")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"with --gpu: the report (default: {REPORT})")


def run(given: dict[str, Any]) -> int:
    """Print the report; returns 1 if a step fails on some device, or the self-test of a GPU."""
    if given["gpu"]:
        return _test_device(given["device"] or "cuda", given["out"] or Path(REPORT))
    for flag in ("device", "out"):
        if given[flag] is not None:
            raise UserError(f"--{flag} goes with --gpu: dualtemp doctor --gpu --{flag} {given[flag]}")
    return _tell_surroundings()


def _test_device(name: str, out: Path) -> int:
    """Test a device, write the report, and enable the fused kernels on it if they passed."""
    import json

    from dualtemp.atomic_write import whole_file
    from dualtemp.self_test.run import run_self_test

    device = _opened(name)
    if not out.resolve().parent.is_dir():
        raise UserError(f"{out.parent} is no folder: give --out a file in one that exists")
    report = run_self_test(device, dry=device.type == "cpu", say=lambda line: print(line, flush=True))
    with whole_file(out) as file:
        file.write(json.dumps(report, indent=1, allow_nan=False).encode())
    right = sum(row["passed"] for row in report["parity"])
    print(f"{right} of {len(report['parity'])} comparisons with the CPU in float64 passed")
    print(_consequence(device, report))
    print(f"{out}: the whole report, without names of yours; attach it to an issue if something is wrong")
    return 0 if report["passed"] else 1


def _opened(name: str) -> "torch.device":
    import torch

    from dualtemp.device import open_device

    if name.startswith("cuda") and not torch.cuda.is_available():
        built = "has no CUDA" if torch.version.cuda is None else f"finds no device for its CUDA {torch.version.cuda}"
        raise UserError(
            f"there is no GPU to test: torch {torch.__version__} {built}; install torch for your GPU, or give "
            "--device cpu for a dry run"
        )
    return open_device(name)


def _consequence(device: "torch.device", report: dict[str, Any]) -> str:
    from dualtemp.kernels import choice

    if device.type != "cuda":
        return "fused kernels are for CUDA devices: nothing changes here"
    if not choice.installed():
        return "fused kernels need triton: pip install 'dualtemp[triton]', then test again"
    if "fused kernels" not in report["passed_paths"]:
        return "fused kernels failed: losses are computed by tiles, as before"
    choice.remember_pass(device)
    return f"fused kernels passed: losses on this device use them from now on ({choice.SWITCH}=0 turns them off)"


def _tell_surroundings() -> int:
    import platform

    import torch

    from dualtemp import __version__
    from dualtemp.machine import cores
    from dualtemp.quantities import counted

    print(f"dualtemp      {__version__}, Python {platform.python_version()}, {platform.platform()}")
    print(f"packages      {', '.join(f'{name} {_version(name)}' for name in PACKAGES)}")
    uses = counted(torch.get_num_threads(), "thread")
    print(f"CPU           {counted(cores(), 'core')}, torch uses {uses}")
    print(f"bf16 on cpu   {_bf16()}")
    print(f"data cache    {_cached()} (digits are always there)")
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    return max([_try_step(name) for name in devices])


def _cached() -> str:
    from dualtemp.data.sources.cache import cache_folder, cached_set
    from dualtemp.data.sources.catalogue import CATALOGUE

    try:
        names = [name for name in CATALOGUE if cached_set(name)]
        return f"{cache_folder()}: {', '.join(names) or 'nothing yet'}"
    except (OSError, UserError) as error:
        return str(error)


def _try_step(device: str) -> int:
    """Run a step of SimCo and print how it went; returns 1 if it fails."""
    import torch

    from dualtemp.losses import dual_temperature
    from dualtemp.models.backbones import build_backbone

    try:
        torch.manual_seed(0)
        encoder = build_backbone("resnet_mini", 32).to(device)
        views = torch.randn(2, 64, 3, 32, 32, device=device)
        start = time.perf_counter()
        loss = dual_temperature(encoder(views[0]), encoder(views[1]))
        loss.backward()
        value, seconds = loss.item(), time.perf_counter() - start
    except RuntimeError as error:
        print(f"step on {device:<6}FAILED: {str(error).splitlines()[0]}")
        return 1
    print(f"step on {device:<6}works: SimCo on 64 images, loss {value:.3f}, {seconds * 1e3:.0f} ms")
    return 0


def _bf16() -> str:
    from dualtemp.bf16_on_cpu import CAP, bf16_on_cpu

    outcome, reason = bf16_on_cpu()
    if outcome == "fails":  # try again: the remembered answer may be that of another machine
        outcome, reason = bf16_on_cpu(afresh=True)
    if outcome == "works capped":
        return f"{reason}; works with {'='.join(CAP)}, which --amp bf16 sets"
    return "works" if outcome == "works" else f"{reason}; --amp bf16 is refused"


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"


COMMAND = Command(
    name="doctor",
    about="Print versions, devices, threads and the data cache, and try a small step; --gpu tests a GPU.",
    place=(Group.START, 2),
    add_arguments=add_arguments,
    run=run,
    takes_threads=False,
)
