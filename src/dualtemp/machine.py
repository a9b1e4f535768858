"""Cores and threads of this process. Needs no torch."""

import os

from dualtemp.errors import UserError

MOST_THREADS = 1024  # with far more, threads fail to start and the process ends without a message
MOST_WORKERS = 1024


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads(count: int | None) -> None:
    """Raise UserError if a number of threads is out of range."""
    if count is not None and count < 1:
        raise UserError(f"--threads must be at least 1, got {count}")
    if count is not None and count > MOST_THREADS:
        raise UserError(f"--threads must be at most {MOST_THREADS:,}, got {count}")


def check_workers(count: int | None) -> None:
    """Raise UserError if a number of reading processes is out of range."""
    if count is not None and not 0 <= count <= MOST_WORKERS:
        raise UserError(f"--workers must be from 0 to {MOST_WORKERS:,}, got {count}")


def use_threads(count: int | None) -> None:
    """Set the number of CPU threads; None leaves it to torch. Loads torch only if a number is given."""
    check_threads(count)
    if count is None:
        return
    import torch

    torch.set_num_threads(count)
