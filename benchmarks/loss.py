"""Time and peak extra memory of forward + backward of one loss, against peers, in one run on one thread.

    python benchmarks/loss.py                       the table
    python benchmarks/loss.py --sizes 65536 --only dualtemp nt_xent

Each measurement is a process of its own. Memory is the peak resident size during the steps minus the size before them,
read from the kernel; time is the best of several steps. "does not fit" is what a peer says whose process would take
more than --limit-gb of memory.

plain: the formula as the paper states it, both directions (softmax at both temperatures, 1 - p, log-softmax), once with
a product for each direction (`plain`) and once with the product shared (`plain shared`). lightly and
pytorch-metric-learning: their NTXentLoss, beside ours (`nt_xent`).
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

D = 128
SIZES = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768]


def plain_direction(q, k, tau_alpha: float, tau_beta: float):
    import torch.nn.functional as F

    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T
    return plain_loss(logits, tau_alpha, tau_beta)


def plain_loss(logits, tau_alpha: float, tau_beta: float):
    import torch.nn.functional as F

    w_alpha = 1 - F.softmax(logits / tau_alpha, dim=1).diagonal()
    w_beta = 1 - F.softmax(logits / tau_beta, dim=1).diagonal()
    return -((w_beta / w_alpha).detach() * F.log_softmax(logits / tau_alpha, dim=1).diagonal()).mean()


def plain(q, k):
    return (plain_direction(q, k, 0.1, 1.0) + plain_direction(k, q, 0.1, 1.0)) / 2


def plain_shared(q, k):
    import torch.nn.functional as F

    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T
    return (plain_loss(logits, 0.1, 1.0) + plain_loss(logits.T, 0.1, 1.0)) / 2


def dualtemp():
    from dualtemp.losses import dual_temperature

    return dual_temperature


def nt_xent():
    from dualtemp.losses import nt_xent

    return nt_xent


def lightly():
    from dualtemp.torchvision_operators import declare_missing_operators

    declare_missing_operators()
    from lightly.loss import NTXentLoss

    return NTXentLoss(temperature=0.1)


def metric_learning():
    import torch
    from pytorch_metric_learning.losses import NTXentLoss

    loss = NTXentLoss(temperature=0.1)

    def paired(q, k):
        labels = torch.arange(len(q))
        return loss(torch.cat((q, k)), torch.cat((labels, labels)))

    return paired


LOSSES: dict[str, Callable] = {
    "plain": lambda: plain,
    "plain shared": lambda: plain_shared,
    "dualtemp": dualtemp,
    "lightly": lightly,
    "pytorch-metric-learning": metric_learning,
    "nt_xent": nt_xent,
}


def measure(name: str, N: int, seconds: float, limit_gb: float) -> None:
    """In a process of its own: print the best time of a step, and the most memory that steps took."""
    import torch

    torch.set_num_threads(1)
    loss = LOSSES[name]()

    def step(n: int) -> float:
        g = torch.Generator().manual_seed(n)
        q, k = (torch.randn(n, D, generator=g, requires_grad=True) for _ in range(2))
        start = time.perf_counter()
        loss(q, k).backward()
        return time.perf_counter() - start

    def status(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

    step(8)
    now = status("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (now + int(limit_gb * 2**30), resource.RLIM_INFINITY))
    before = status("VmRSS")
    best, end = step(N), time.perf_counter() + seconds
    extra = status("VmHWM") - before
    while time.perf_counter() < end:
        best = min(best, step(N))
    print(json.dumps({"seconds": best, "bytes": extra}))


def measured(name: str, N: int, seconds: float, limit_gb: float) -> dict | None:
    command = [sys.executable, __file__, "--measure", name, str(N), "--seconds", str(seconds)]
    run = subprocess.run([*command, "--limit-gb", str(limit_gb)], capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return json.loads(run.stdout.splitlines()[-1])
    if "alloc" in run.stderr or run.returncode < 0:
        return None
    raise SystemExit(run.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--seconds", type=float, default=3.0, help="to repeat a step for, at least once")
    parser.add_argument("--limit-gb", type=float, default=12.0)
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "N"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], int(arguments.measure[1]), arguments.seconds, arguments.limit_gb)
        return
    print(f"{'N':>6}  {'loss':<24} {'ms':>10} {'MiB extra':>10}  time and memory of the peer = 1")
    for N in arguments.sizes:
        results = {name: measured(name, N, arguments.seconds, arguments.limit_gb) for name in arguments.only}
        for name, result in results.items():
            if result is None:
                print(f"{N:>6}  {name:<24} does not fit")
                continue
            peers = {"dualtemp": ("plain", "plain shared"), "nt_xent": ("lightly", "pytorch-metric-learning")}
            ratios = [
                f"{peer}: {result['seconds'] / other['seconds']:.2f} of the time, "
                f"{result['bytes'] / other['bytes']:.3f} of the memory"
                for peer in peers.get(name, ())
                if (other := results.get(peer))
            ]
            line = f"{N:>6}  {name:<24} {result['seconds'] * 1e3:>10.2f} {result['bytes'] / 2**20:>10.1f}"
            print(f"{line}  {'; '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
