"""Cores and threads of this process. Needs no torch."""

import os

from dualtemp.errors import UserError


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(count: int | None) -> None:
    """Set the number of CPU threads; None leaves it to torch. Loads torch only if a number is given."""
    if count is None:
        return
    if count < 1:
        raise UserError(f"--threads must be at least 1, got {count}")
    import torch

    torch.set_num_threads(count)
