"""Which device a process computes on, alone or as one of several, and how processes talk to each other there."""

import os
from dataclasses import dataclass

import torch

from dualtemp.errors import UserError

KINDS = ("cpu", "cuda", "mps", "xpu")


@dataclass(frozen=True)
class Place:
    """Where a process stands: its number on this host, how many there are on this host, and in all."""

    local_rank: int = 0
    local_world: int = 1
    world: int = 1

    @staticmethod
    def announced() -> "Place":
        """As torchrun announces it in the environment; launchers that do not count a host's processes give ranks."""
        rank, world = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        return Place(rank, int(os.environ.get("LOCAL_WORLD_SIZE", rank + 1)), world) if world > 1 else Place()


def device_name(asked: str, place: Place, gpus: int, mps: bool) -> str:
    """The device of a process, by name: the asked one, its own GPU among several processes, or the best for "auto".

    gpus: CUDA devices of this host; mps: whether there is Apple's.
    """
    if asked == "auto":
        asked = "cuda" if gpus else "mps" if mps and place.world == 1 else "cpu"
    kind, _, index = asked.partition(":")
    if place.world == 1:
        return asked
    if kind in ("mps", "xpu"):
        raise UserError(f"device {asked!r} is for one process, here are {place.world}: give --device cpu")
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
    """The device of this process, tried."""
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
    """What processes whose tensors are on this device talk through."""
    return "nccl" if device.type == "cuda" else "gloo"
