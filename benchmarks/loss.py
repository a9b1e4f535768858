"""Time and peak extra memory of forward + backward of each loss, against peers, in one run on one thread.

    python benchmarks/loss.py                                          the table
    python benchmarks/loss.py --sizes 65536 --only dualtemp nt_xent
    python benchmarks/loss.py --parts 8                                where the time of a small batch goes

Time: the losses of one size take turns in one process, and the best step of each counts; a loss whose first step takes
more than --seconds has that step alone. It is processor time, which other users of the machine change less than time
on the clock. Memory: a process for each loss; the peak resident size during a step minus the size before it, read from
the kernel. "does not fit" is what a loss says whose process would take more than --limit-gb of memory; a peer that is
not installed is left out.
"""

import argparse
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

from compared_losses import LOSSES, PEERS

D = 128
FORK = multiprocessing.get_context("fork")
SIZES = [8, 64, 256, 512, 1024, 2048, 4096, 8192, 16384]


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
    """Print how long forward and backward take, and how many operations of torch each is made of."""
    losses = make_losses(["plain shared", "dualtemp"])
    best = {name: [float("inf")] * 2 for name in losses}
    end = time.perf_counter() + seconds * len(losses)
    while time.perf_counter() < end:
        for name, loss in losses.items():
            best[name] = [min(pair) for pair in zip(best[name], time_halves(loss, N), strict=True)]
    for name, loss in losses.items():
        (forward, backward), (first, second) = best[name], count_operations(loss, N)
        line = f"forward {forward * 1e6:.0f} us in {first} operations, backward {backward * 1e6:.0f} us in {second}"
        print(f"{N:>6}  {name:<24} {line}")


def time_halves(loss: Callable, N: int) -> tuple[float, float]:
    import torch

    q, k = (torch.randn(N, D, requires_grad=True) for _ in range(2))
    start = time.process_time()
    value = loss(q, k)
    middle = time.process_time()
    value.backward()
    return middle - start, time.process_time() - middle


def count_operations(loss: Callable, N: int) -> tuple[int, int]:
    import torch
    from torch.profiler import profile

    def count(seen: profile) -> int:
        events = [event for event in seen.events() or () if event.name.startswith("aten::")]
        return sum(not (event.cpu_parent and event.cpu_parent.name.startswith("aten::")) for event in events)

    q, k = (torch.randn(N, D, requires_grad=True) for _ in range(2))
    with profile() as forward:
        value = loss(q, k)
    with profile() as backward:
        value.backward()
    return count(forward), count(backward)


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
