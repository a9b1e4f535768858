"""The engine that `--on` names."""

from dataclasses import dataclass

from dualtemp.engines.engine import Engine, Place
from dualtemp.errors import UserError
from dualtemp.machine import cores

ENGINES = ("local",)


@dataclass(frozen=True)
class EngineOptions:
    """How an engine carries out tasks, in the words of the command line.

    on: one of ENGINES; jobs: tasks at a time; threads: CPU threads of each; device: of each.
    """

    on: str = "local"
    jobs: int | None = None
    threads: int | None = None
    device: str = "auto"


def open_engine(options: EngineOptions) -> Engine:
    """Open the engine that the options name."""
    if options.on == "local":
        return _open_local(options)
    raise UserError(f"--on {options.on}: choose among {', '.join(ENGINES)}")


def _open_local(options: EngineOptions) -> Engine:
    """One task a GPU, or a core: never more at once than there are, unless --jobs says so."""
    import torch

    from dualtemp.engines.local import LocalEngine

    devices, jobs = [options.device], options.jobs
    if options.device in ("auto", "cuda") and torch.cuda.is_available():
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        jobs = jobs or len(devices)
    jobs = jobs or (cores() if devices == ["cpu"] or not torch.backends.mps.is_available() else 1)
    threads = options.threads or max(1, cores() // jobs)
    return LocalEngine([Place(devices[i % len(devices)], threads) for i in range(jobs)])
