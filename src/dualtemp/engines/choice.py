"""The engine that `--on` names."""

from dataclasses import dataclass
from pathlib import Path

from dualtemp.engines.engine import Engine, Place
from dualtemp.errors import UserError
from dualtemp.machine import cores

ENGINES = ("local", "slurm", "ray")


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine, in the words of the command line.

    on: one of ENGINES; jobs: tasks at a time; threads and device: of each; slurm: KEY=VALUE for sbatch.
    """

    on: str = "local"
    jobs: int | None = None
    threads: int | None = None
    device: str = "auto"
    slurm: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs of each task on a cluster: one if the user asked for a GPU, since nodes may differ from this machine."""
        return 1 if self.device.startswith("cuda") else 0


def open_engine(options: EngineOptions, folder: Path) -> Engine:
    """Open the engine that the options name; folder: for logs of jobs, on a disk that all machines see."""
    if options.on == "local":
        return _open_local(options)
    place = Place(options.device, options.threads or 1)
    if options.on == "slurm":
        from dualtemp.engines.slurm import open_slurm

        return open_slurm(folder, place, options.jobs, options.gpus, options.slurm)
    if options.on == "ray":
        from dualtemp.engines.ray_cluster import open_ray

        return open_ray(place, options.jobs, options.gpus)
    raise UserError(f"--on {options.on}: choose among {', '.join(ENGINES)}")


def _open_local(options: EngineOptions) -> Engine:
    """One task per GPU, or per `threads` cores; never more at once than there are of these, unless --jobs says so."""
    import torch

    from dualtemp.engines.local import LocalEngine

    devices, jobs = [options.device], options.jobs
    if options.device in ("auto", "cuda") and torch.cuda.is_available():
        devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        jobs = jobs or len(devices)
    on_cpu = options.device == "cpu" or (options.device == "auto" and not torch.backends.mps.is_available())
    jobs = jobs or (max(1, cores() // (options.threads or 1)) if on_cpu else 1)
    threads = options.threads or max(1, cores() // jobs)
    return LocalEngine([Place(devices[i % len(devices)], threads) for i in range(jobs)])
