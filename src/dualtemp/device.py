"""Choose the device of a process, which may be one of several, and the backend through which they communicate."""

import os
from dataclasses import dataclass

import torch

from dualtemp.errors import UserError

KINDS = ("cpu", "cuda", "mps", "xpu")


@dataclass(frozen=True)
class Place:
    """Local rank of a process, number of processes on its host, and world size."""

    local_rank: int = 0
    local_world: int = 1
    world: int = 1

    @staticmethod
    def announced() -> "Place":
        """Read torchrun's environment variables; without LOCAL_WORLD_SIZE, the local rank gives a lower bound."""
        rank, world = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        return Place(rank, int(os.environ.get("LOCAL_WORLD_SIZE", rank + 1)), world) if world > 1 else Place()


def device_name(asked: str, place: Place, gpus: int, mps: bool) -> str:
    """Choose the device of a process: the one asked for, its own GPU among several processes, or the best for "auto".

    gpus: number of CUDA devices on this host; mps: whether Apple's is available.
    """
    if asked == "auto":
        asked = "cuda" if gpus else "mps" if mps and place.world == 1 else "cpu"
    kind, _, index = asked.partition(":")
    if place.world == 1:
        return asked
    if kind in ("mps", "xpu"):
        raise UserError(f"device {asked!r} works with one process, not with {place.world}: give --device cpu")
    if kind == "cuda" and place.local_world > 1 and index:
        raise UserError(
            f"--device {asked} is one GPU for {place.local_world} processes: give --device cuda, and each takes its own"
        )
    if kind == "cuda" and 0 < gpus < place.local_world:
        raise UserError(
            f"{place.local_world} processes on a host with {gpus} GPU{'s' if gpus > 1 else ''}: start "
            f"--nproc-per-node {gpus}, or give --device cpu"
        )
    return f"cuda:{place.local_rank}" if asked == "cuda" else asked


def open_device(asked: str) -> torch.device:
    """Open the device of this process and try it."""
    mps = torch.backends.mps.is_available()
    name = device_name(asked, Place.announced(), torch.cuda.device_count() if torch.cuda.is_available() else 0, mps)
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        if name.split(":")[0] not in KINDS:
            raise UserError(f"no device is called {name!r}: give cpu, cuda, cuda:1, mps or auto") from None
        raise UserError(f"device {name!r} cannot be used ({str(error).splitlines()[0]}): try --device cpu") from None
    return device


def backend_of(device: torch.device) -> str:
    """The torch.distributed backend for tensors on this device."""
    return "nccl" if device.type == "cuda" else "gloo"


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the global generators that draw on this device, and the CPU's."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` also notes it, with a stack, for absent GPUs
    else:
        torch.manual_seed(seed)
