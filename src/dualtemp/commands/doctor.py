"""`dualtemp doctor`: versions, devices, threads, data cache, and whether a small step runs."""

import time
from typing import Any

from dualtemp.commands.command import Command, Group
from dualtemp.errors import UserError

PACKAGES = ("torch", "torchvision", "timm", "numpy", "pillow", "pydantic", "safetensors")


def run(given: dict[str, Any]) -> int:
    """Print the report; returns 1 if a step fails on some device."""
    import platform

    import torch

    from dualtemp import __version__
    from dualtemp.machine import cores

    print(f"dualtemp      {__version__}, Python {platform.python_version()}, {platform.platform()}")
    print(f"packages      {', '.join(f'{name} {_version(name)}' for name in PACKAGES)}")
    print(f"CPU           {cores()} cores, torch uses {torch.get_num_threads()} threads")
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
    if outcome == "fails":  # the answer is kept in a file, and may be that of another machine
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
    about="Print versions, devices, threads and the data cache, and try a small step.",
    place=(Group.START, 2),
    add_arguments=lambda parser: None,
    run=run,
    takes_threads=False,
)
