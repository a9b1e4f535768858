"""Run a function of a file in several real processes that form a group, and collect what each returns."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from command_processes import PATIENCE

PROGRAM = """
import runpy, sys, torch
torch.set_num_threads(1)
from dualtemp import distributed
file, function, out = sys.argv[1:]
main = runpy.run_path(file)[function]
with distributed.processes():
    result = main()
    torch.save(result, f"{out}/{distributed.rank()}.pt")
    del result
"""


def run(file: str, function: str, world_size: int, out: Path) -> list[Any]:
    out.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, file, function, str(out)],
            env={**os.environ, **group, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        said = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, said, strict=True):
        assert process.returncode == 0, text
    return [torch.load(out / f"{rank}.pt", weights_only=False) for rank in range(world_size)]
