"""Test once, in a child process, whether this CPU can compute in bfloat16, and remember the answer. Needs no torch.

Some hosts announce AMX but do not allow it: every bfloat16 product then kills the process with SIGILL, which cannot be
caught. Capping oneDNN's instruction set before torch is loaded keeps it from using AMX.
"""

import contextlib
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from dualtemp.atomic_write import whole_file
from dualtemp.data.sources.cache import cache_folder
from dualtemp.errors import UserError

CAP = ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # all but AMX
PATIENCE = 300  # seconds: loading torch takes two or three
WINDOWS_ILLEGAL_INSTRUCTION = 0xC000001D
STEP = """
import torch
torch.set_num_threads(1)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3), torch.nn.Conv2d(16, 32, 3, 2), torch.nn.Flatten(), torch.nn.Linear(32 * 14 * 14, 64)
)
for layout in (torch.contiguous_format, torch.channels_last):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = network(torch.randn(8, 3, 32, 32).contiguous(memory_format=layout))
        loss = (features @ features.T).float().mean()
    loss.backward()
"""
PROBE = (sys.executable, "-c", STEP)


class Bf16(NamedTuple):
    """outcome: "works", "works capped" (with the instruction set CAP) or "fails"; reason: how it fails without CAP."""

    outcome: str
    reason: str = ""


def bf16_on_cpu(probe: Sequence[str] = PROBE, *, afresh: bool = False) -> Bf16:
    """Try a step in bfloat16 in this environment; remember the outcome if it was success or SIGILL.

    probe: the command that computes the step; afresh: ignore a remembered outcome.
    """
    environment = dict(os.environ)
    known = {} if afresh else _remembered()
    if (name := _name(environment)) in known:
        return known[name]
    reason, sure = _end(probe, environment)
    if not reason:
        found = {name: Bf16("works")}
    elif CAP[0] in environment:  # set by the user: not ours to change
        found = {name: Bf16("fails", reason)}
    else:
        capped = {**environment, CAP[0]: CAP[1]}
        still, sure_too = _end(probe, capped)
        found = {name: Bf16("fails" if still else "works capped", reason)}
        found[_name(capped)] = Bf16("fails", still) if still else Bf16("works")
        sure = sure and sure_too
    if sure:
        _remember(found)
    return found[name]


def allow_bf16(probe: Sequence[str] = PROBE) -> None:
    """Cap oneDNN's instruction set if bfloat16 needs it. No effect once torch is loaded, which reads it only once."""
    if "torch" not in sys.modules and bf16_on_cpu(probe).outcome == "works capped":
        os.environ[CAP[0]] = CAP[1]


def refuse_deadly_bf16() -> None:
    """Raise UserError if bfloat16 would kill this process or fail."""
    outcome, reason = bf16_on_cpu()
    if outcome == "works capped":  # too late for `allow_bf16`
        raise UserError(
            f"--amp bf16 would kill this process on this CPU ({reason}): set {CAP[0]}={CAP[1]} before torch is loaded, "
            "or give --amp none"
        )
    if outcome == "fails":
        raise UserError(f"--amp bf16 cannot be used on this CPU ({reason}): give --amp none")


def _end(probe: Sequence[str], environment: Mapping[str, str]) -> tuple[str, bool]:
    """Run the probe; returns why it failed ("" if it did not), and whether it would surely end so again."""
    try:
        done = subprocess.run(
            probe,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a step in bfloat16 could not be tried: {error}", False
    if done.returncode == 0:
        return "", True
    if done.returncode < 0 or done.returncode == WINDOWS_ILLEGAL_INSTRUCTION:
        number = -done.returncode if done.returncode < 0 else signal.SIGILL
        return f"a step in bfloat16 ended with {signal.Signals(number).name}", number == signal.SIGILL
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"a step in bfloat16 failed: {last}", False


def _name(environment: Mapping[str, str]) -> str:
    """The key of a remembered outcome: host, processor, torch, and the instruction set in the environment."""
    processor = platform.processor()
    with contextlib.suppress(OSError):
        processor = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    lines = [line for line in processor.splitlines() if "MHz" not in line]  # the clock rate changes
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()
    isa = environment.get(CAP[0], "any")
    return f"{platform.node()}, {platform.platform()}, processor {digest}, torch {version('torch')}, {isa}"


def _remembered() -> dict[str, Bf16]:
    try:
        return {name: Bf16(*found) for name, found in json.loads(_file().read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):  # there is no such file, or no home
        return {}


def _remember(found: dict[str, Bf16]) -> None:
    with contextlib.suppress(OSError, UserError):  # no home, a full disk: it is tried again next time
        _file().parent.mkdir(parents=True, exist_ok=True)
        with whole_file(_file()) as file:
            file.write(json.dumps({**_remembered(), **found}, indent=1).encode())


def _file() -> Path:
    return cache_folder() / "bf16.json"
