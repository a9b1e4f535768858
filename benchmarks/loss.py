"""Time and peak extra memory of forward + backward of each loss, against peers, in one run on one thread.

    python benchmarks/loss.py                                          the table
    python benchmarks/loss.py --sizes 65536 --only dualtemp nt_xent
    python benchmarks/loss.py --parts 8                                where the time of a small batch goes

Time: the losses of one size take turns in one process, and the best step of each counts; a loss whose first step takes
more than --seconds has that step alone. It is processor time, which other users of the machine change less than time
on the clock. Memory: a process for each loss; the peak resident size during a step minus the size before it, read from
the kernel. "does not fit" is what a loss says whose process would take more than --limit-gb of memory; a peer that is
not installed is left out.

plain: the formula as the paper states it, both directions (softmax at both temperatures, 1 - p, log-softmax), once with
a product for each direction (`plain`) and once with the product shared (`plain shared`). Each peer stands above the
member of the family that has its gradient (MACL and libauc: up to a constant). Embeddings are as an encoder gives them:
normalization is part of the step.
"""

import argparse
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

D = 128
IMAGES = 50_000  # of the data set, for losses that keep numbers per image
FORK = multiprocessing.get_context("fork")
SIZES = [8, 64, 256, 512, 1024, 2048, 4096, 8192, 16384]


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


def lightly_dcl():
    from lightly.loss import DCLLoss

    return DCLLoss(temperature=0.1)


def equal():
    from dualtemp.losses import NTXentLoss

    return NTXentLoss(0.1, weight="equal")


def lightly_macl():
    from lightly.loss.macl_loss import MACLLoss

    return MACLLoss(temperature=0.1, alpha=0.5, A_0=0.0)


def adaptive():
    from dualtemp.losses import AdaptiveTemperature, NTXentLoss

    return NTXentLoss(AdaptiveTemperature(0.1, 0.5, 0.0), weight="equal")


def images_of(n: int):
    import torch

    return torch.arange(n) * (IMAGES // n)


def libauc():
    import torch.nn.functional as F
    from libauc.losses.contrastive import GCLoss_v2

    loss = GCLoss_v2(N=IMAGES, tau=0.1, gamma=0.9)
    return lambda q, k: loss(F.normalize(q, dim=1), F.normalize(k, dim=1), images_of(len(q)))[0]


def memory():
    from dualtemp.losses import DualTemperatureLoss

    loss = DualTemperatureLoss(0.1, weight="memory", images=IMAGES)
    return lambda q, k: loss(q, k, index=images_of(len(q)))


def open_clip():
    import torch
    import torch.nn.functional as F
    from open_clip.loss import ClipLoss

    loss, log_scale = ClipLoss(), torch.tensor(1 / 0.1).log().requires_grad_()
    return lambda q, k: loss(F.normalize(q, dim=1), F.normalize(k, dim=1), log_scale.exp())


def two_towers():
    from dualtemp.losses import TwoTowersLoss

    return TwoTowersLoss(tau=0.1)


LOSSES: dict[str, Callable] = {
    "plain": lambda: plain,
    "plain shared": lambda: plain_shared,
    "dualtemp": dualtemp,
    "lightly": lightly,
    "pytorch-metric-learning": metric_learning,
    "nt_xent": nt_xent,
    "lightly DCL": lightly_dcl,
    "equal": equal,
    "lightly MACL": lightly_macl,
    "equal, adaptive": adaptive,
    "libauc GCLoss": libauc,
    "memory": memory,
    "open_clip ClipLoss": open_clip,
    "two_towers": two_towers,
}
PEERS: dict[str, tuple[str, ...]] = {
    "dualtemp": ("plain", "plain shared"),
    "nt_xent": ("lightly", "pytorch-metric-learning"),
    "equal": ("lightly DCL",),
    "equal, adaptive": ("lightly MACL",),
    "memory": ("libauc GCLoss",),
    "two_towers": ("open_clip ClipLoss",),
}


def make_losses(names: list[str]) -> dict[str, Callable]:
    """The losses by name, without those whose package is not installed; a line says which."""
    import torch

    from dualtemp.torchvision_operators import declare_missing_operators

    torch.set_num_threads(1)
    declare_missing_operators()  # peers import torchvision
    losses = {}
    for name in names:
        try:
            losses[name] = LOSSES[name]()
        except ImportError as error:
            print(f"        {name}: left out, {error}")
    return losses


def time_step(loss: Callable, n: int) -> float:
    import torch

    g = torch.Generator().manual_seed(n)
    q, k = (torch.randn(n, D, generator=g, requires_grad=True) for _ in range(2))
    start = time.process_time()
    loss(q, k).backward()
    return time.process_time() - start


def run_in_fork(measure: Callable[[], dict]) -> dict | None:
    """What `measure` returns in a process of its own, which starts with all imports done; None: out of memory."""
    receiver, sender = FORK.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send(measure())
        except (MemoryError, RuntimeError) as error:
            if "alloc" not in str(error) and not isinstance(error, MemoryError):
                raise
            sender.send(None)

    child = FORK.Process(target=run)
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        child.join()
        if child.exitcode == -signal.SIGKILL:  # the kernel's way to say so
            return None
        raise SystemExit(f"a measurement ended with {child.exitcode}") from None
    finally:
        child.join()


def measure_memory(loss: Callable, N: int, limit_gb: float) -> dict:
    """The most memory that a first step took, and its time."""

    def status(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

    time_step(loss, 8)
    now = status("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (now + int(limit_gb * 2**30), resource.RLIM_INFINITY))
    before = status("VmRSS")
    seconds = time_step(loss, N)
    return {"bytes": status("VmHWM") - before, "seconds": seconds}


def measure_times(losses: dict[str, Callable], N: int, seconds: float) -> dict[str, float]:
    """The best time of a step of each loss; they take turns."""
    best = dict.fromkeys(losses, float("inf"))
    end = time.perf_counter() + seconds * len(losses)
    while losses and time.perf_counter() < end:
        for name, loss in losses.items():
            best[name] = min(best[name], time_step(loss, N))
    return best


def print_parts(N: int, seconds: float) -> None:
    """Print how long forward and backward take, and how many operations each loss hands to torch."""
    from torch.profiler import profile

    names = ["plain shared", "dualtemp"]
    losses = make_losses(names)
    best = {name: [float("inf")] * 2 for name in names}
    end = time.perf_counter() + seconds * len(names)
    while time.perf_counter() < end:
        for name, loss in losses.items():
            best[name] = [min(pair) for pair in zip(best[name], time_halves(loss, N), strict=True)]
    for name, loss in losses.items():
        with profile() as seen:
            time_step(loss, N)
        operations = [event for event in seen.events() or () if event.name.startswith("aten::")]
        outer = [event for event in operations if not (event.cpu_parent and event.cpu_parent.name.startswith("aten::"))]
        forward, backward = (1e6 * part for part in best[name])
        print(f"{N:>6}  {name:<24} forward {forward:.0f} us, backward {backward:.0f} us, {len(outer)} operations")


def time_halves(loss: Callable, n: int) -> tuple[float, float]:
    import torch

    q, k = (torch.randn(n, D, requires_grad=True) for _ in range(2))
    start = time.process_time()
    value = loss(q, k)
    middle = time.process_time()
    value.backward()
    return middle - start, time.process_time() - middle


def compare(losses: dict[str, Callable], N: int, seconds: float, limit_gb: float) -> None:
    """Print the lines of one size."""
    first = {name: run_in_fork(lambda loss=loss: measure_memory(loss, N, limit_gb)) for name, loss in losses.items()}
    fit = {name: result for name, result in first.items() if result is not None}
    short = {name: losses[name] for name, result in fit.items() if result["seconds"] < seconds}
    times = run_in_fork(lambda: measure_times(short, N, seconds)) or {}
    times = {name: min(result["seconds"], times.get(name, float("inf"))) for name, result in fit.items()}
    for name in losses:
        if name not in times:
            print(f"{N:>6}  {name:<24} does not fit", flush=True)
            continue
        ratios = [
            f"{peer}: {times[name] / times[peer]:.2f} of the time"
            + (f", {fit[name]['bytes'] / held:.3f} of the memory" if (held := fit[peer]["bytes"]) > 2**20 else "")
            for peer in PEERS.get(name, ())
            if peer in times
        ]
        line = f"{N:>6}  {name:<24} {times[name] * 1e3:>10.3f} {fit[name]['bytes'] / 2**20:>10.1f}"
        print(f"{line}  {'; '.join(ratios)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--seconds", type=float, default=3.0, help="to repeat the steps of each loss for")
    parser.add_argument("--limit-gb", type=float, default=12.0)
    parser.add_argument("--parts", type=int, metavar="N", help="print where the time of a step of N pairs goes")
    arguments = parser.parse_args()
    if arguments.parts:
        print_parts(arguments.parts, arguments.seconds)
        return
    print(f"{'N':>6}  {'loss':<24} {'ms':>10} {'MiB extra':>10}  time and memory of the peer = 1")
    losses = make_losses(arguments.only)
    for N in arguments.sizes:
        compare(losses, N, arguments.seconds, arguments.limit_gb)


if __name__ == "__main__":
    main()
