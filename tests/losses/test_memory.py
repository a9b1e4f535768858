"""Memory that grows with N, not with N squared: the most that a process ever held, read from the kernel."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading, time
import torch
from dualtemp import losses

torch.set_num_threads(1)
N, name = int(sys.argv[1]), sys.argv[2]
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) // 1024
def step(n):
    q, k = (torch.randn(n, 32, requires_grad=True) for _ in range(2))
    if name == "info_nce":
        loss = losses.info_nce(q, k.detach(), k.detach())
    elif name == "two_towers":
        loss = losses.two_towers(q, k, torch.tensor(0.07, requires_grad=True), 1.0, ids=torch.arange(n) // 2)
    elif name == "supervised_contrastive":
        loss = losses.supervised_contrastive(q, None, torch.arange(n) % 100, 0.1, 1.0)
    else:
        loss = getattr(losses, name)(q, k)
    loss.backward()
    assert q.grad.isfinite().all()
step(64)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # forget the highest so far: importing may have held more than is held now
before = status("VmRSS")
step(N)
print(status("VmHWM") - before)
"""


OTHERS = ("nt_xent", "info_nce", "two_towers", "supervised_contrastive")


@pytest.mark.parametrize("name", ["dual_temperature", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_a_batch_whose_matrix_would_not_fit_takes_little_memory(name: str) -> None:
    N = 16384 if name == "supervised_contrastive" else 12288  # tiles of labels are there too, as many in any batch
    matrix = N**2 * 4 >> 20  # 576 MiB in float32 for 12288
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(N), name], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(run.stdout) < matrix / 20
