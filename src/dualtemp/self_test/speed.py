"""Time and memory of a loss by each of the ways to compute it, and the memory that each is expected to take."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp import losses
from dualtemp.losses import product_plan

FLOAT = 4  # bytes


class Task(NamedTuple):
    """A loss, forward and backward: of N pairs, or of N anchors against K keys of a dictionary."""

    anchors: int
    keys: int | None  # None: the batch's own
    width: int

    @property
    def name(self) -> str:
        """The loss that is computed."""
        return "dual_temperature" if self.keys is None else "info_nce"


def run_once(task: Task, device: torch.device, plain: bool) -> Callable[[], None]:
    """Return a step of the task on tensors that are there already; `plain` for the formula on whole matrices."""
    g = torch.Generator().manual_seed(0)
    q, k = (torch.randn(task.anchors, task.width, generator=g).to(device).requires_grad_() for _ in range(2))
    keys = None if task.keys is None else torch.randn(task.keys, task.width, generator=g).to(device)

    def step() -> None:
        q.grad = k.grad = None
        if keys is not None:
            loss = plain_info_nce(q, k, keys) if plain else losses.info_nce(q, k, keys)
        else:
            loss = plain_dual_temperature(q, k) if plain else losses.dual_temperature(q, k)
        loss.backward()

    return step


def plain_dual_temperature(q: Tensor, k: Tensor, tau_alpha: float = 0.1, tau_beta: float = 1.0) -> Tensor:
    """The formula on whole matrices, as it is usually written."""
    total = q.new_zeros(())
    for a, b in ((q, k), (k, q)):
        s = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
        positive = torch.arange(len(s), device=s.device)
        weights = [1 - F.softmax(s.detach() / tau, 1).diagonal() for tau in (tau_beta, tau_alpha)]
        each = F.cross_entropy(s / tau_alpha, positive, reduction="none")
        total = total + (weights[0] / weights[1] * each).mean() / 2
    return total


def plain_info_nce(q: Tensor, k: Tensor, keys: Tensor, tau: float = 0.1) -> Tensor:
    """The formula on whole matrices, as it is usually written."""
    q, k, keys = (F.normalize(x, dim=1) for x in (q, k, keys))
    logits = torch.cat(((q * k).sum(1, keepdim=True), q @ keys.T), 1) / tau
    return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long, device=q.device))


def milliseconds(step: Callable[[], None], device: torch.device, repeats: int) -> float:
    """The best of several steps, after one that compiles and allocates."""
    step()
    best = float("inf")
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        step()
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def peak_bytes(step: Callable[[], None], device: torch.device) -> int | None:
    """The most that a step holds beyond what was there before it; None where it cannot be read."""
    if device.type != "cuda":
        return None
    step()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    return torch.cuda.max_memory_allocated(device) - before


def forecast_bytes(task: Task, path: str, device: torch.device) -> int:
    """What a step is expected to hold at most beyond its input, in float32."""
    N, K = task.anchors, task.keys or task.anchors
    rows = N * task.width
    # Unit vectors, their gradient and that of the embeddings, for both views; the dictionary as unit vectors.
    linear = 8 * rows + (K * task.width if task.keys else 0) + 16 * (N + K)
    if path == "plain formula":  # logits, their two softmaxes and the gradient, in each direction
        return FLOAT * (linear + (4 if task.keys else 6) * N * K)
    if path == "fused kernels":
        programs = 2 * _multiprocessors(device)  # of 64 rows each, where keys are divided among programs
        return FLOAT * (linear + rows + programs * 64 * task.width)
    tile = min(N * K, product_plan.TILE_ELEMENTS.get(device.type, product_plan.TILE_ELEMENTS["cuda"]))
    kept = N * K if task.keys is None and N * K <= product_plan.KEPT_ELEMENTS else 0
    return FLOAT * (linear + (kept + tile if kept else 2 * tile))


def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
