"""Several processes as one: gathering with gradients, global means, a clean start and end."""

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from dualtemp.device import backend_of
from dualtemp.errors import UserError
from dualtemp.first_derivative import first_derivative_only

# Others may wait this long while rank 0 fetches a data set or evaluates. A process that ends is noticed at once.
PATIENCE = timedelta(hours=2)

T = TypeVar("T")

_batches_are_equal: ContextVar[bool] = ContextVar("_batches_are_equal", default=False)


def world_size() -> int:
    """Number of processes of this run; 1 where there is no process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def gather(x: Tensor, *, equal: bool = False) -> Tensor:
    """Concatenate `x` (N, ...) of all processes into (world_size * N, ...), in the order of ranks.

    Backward sums the gradients of this process's rows over all processes, so that the gradient of a loss over local
    anchors and gathered keys is right under DistributedDataParallel's averaging. N must be the same on all processes.
    This is checked (on a GPU, by waiting for the device) unless `equal` is set or the call is inside `equal_batches`.
    """
    if world_size() == 1:
        return x
    if not equal:
        require_equal_batches(x)
    return _Gather.apply(x) if x.requires_grad and torch.is_grad_enabled() else _all_gather(x)  # pyright: ignore


def exchange_columns(x: Tensor) -> Tensor:
    """Each process has `x` (N, world_size * N); return this process's N columns of all of them: (world_size * N, N)."""
    n = len(x)
    mine = x.new_empty(world_size() * n, n)
    for receiver, columns in enumerate(x.split(n, dim=1)):
        parts = list(mine.split(n)) if receiver == rank() else None
        dist.gather(columns.contiguous(), parts, dst=receiver)
    return mine


def require_equal_batches(x: Tensor) -> None:
    """Raise on every process if shapes of `x` differ between processes; not checked inside `equal_batches`."""
    if not _batches_are_equal.get():
        _require_equal_shapes(x)


def send_to_next(x: Tensor) -> Callable[[], Tensor]:
    """Start sending `x` to the next process of a ring, and receiving the previous one's; call the result to wait."""
    x, world = x.detach().contiguous(), world_size()
    received = torch.empty_like(x)
    sent = dist.P2POp(dist.isend, x, (rank() + 1) % world)
    transfers = dist.batch_isend_irecv([sent, dist.P2POp(dist.irecv, received, (rank() - 1) % world)])

    def arrived() -> Tensor:
        for transfer in transfers:
            transfer.wait()
        return received

    return arrived


@contextmanager
def equal_batches() -> Iterator[None]:
    """Let `gather` skip its check of shapes: `Loader` makes batches of equal size on all processes."""
    before = _batches_are_equal.set(True)
    try:
        yield
    finally:
        _batches_are_equal.reset(before)


def global_mean(x: Tensor) -> Tensor:
    """Mean of the local means `x` (scalars, or equal shapes) over all processes; backward passes the gradient as is."""
    return _GlobalMean.apply(x) if world_size() > 1 else x  # pyright: ignore


@contextmanager
def processes(device: torch.device | str = "cpu") -> Iterator[None]:
    """Join the process group that torchrun announces in the environment, and leave it cleanly.

    Does nothing without torchrun. Keep models under DistributedDataParallel local to a function called inside the
    block, so that they are freed before the group is destroyed.

    Args:
        device: where this process's tensors are; determines the backend.
    """
    device = torch.device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, number, world = next(rendezvous("env://", timeout=PATIENCE))
    # torchrun's store outlives a restart; the prefix hides the addresses that earlier processes left in it.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"attempt {attempt}", store)  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group(backend_of(device), store=store, rank=number, world_size=world, timeout=PATIENCE)
    try:
        yield
        # Destroying a group while a peer still communicates, or a model still refers to it, aborts the process.
        dist.barrier()
    finally:
        gc.collect()
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _all_gather(x)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        n = len(gradient) // world_size()
        gradient = gradient.contiguous()
        if dist.get_backend() == "nccl":
            local = gradient.new_empty(n, *gradient.shape[1:])
            dist.reduce_scatter_tensor(local, gradient)
            return local
        gradient = gradient.clone()  # autograd may hold on to the tensor that it handed over
        dist.all_reduce(gradient)
        return gradient[rank() * n : (rank() + 1) * n]


class _GlobalMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.detach().clone()
        dist.all_reduce(total)
        return total / world_size()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def _all_gather(x: Tensor) -> Tensor:
    x = x.detach().contiguous()
    joined = x.new_empty(world_size() * len(x), *x.shape[1:])
    dist.all_gather(list(joined.chunk(world_size())), x)
    return joined


def _require_equal_shapes(x: Tensor) -> None:
    """Raise on every process, since a collective with unequal shapes would hang or mix up rows."""
    mine = torch.tensor(x.shape, device=x.device)
    shapes = [torch.empty_like(mine) for _ in range(world_size())]
    dist.all_gather(shapes, mine)
    seen = [tuple(shape.tolist()) for shape in shapes]
    if len(set(seen)) > 1:
        raise ValueError(
            f"gather: every process must bring the same local batch, got shapes {seen} by rank; drop the last, smaller "
            "batch (drop_last=True)"
        )


@torch.no_grad()
def average_gradients(parameters: Sequence[Tensor]) -> None:
    """Replace each parameter's gradient by its mean over all processes; a missing gradient counts as 0."""
    if world_size() == 1:
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flat = torch.cat([g.reshape(-1) for g in gradients])
    dist.all_reduce(flat)
    flat /= world_size()
    for p, mean in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        p.grad = mean.view_as(p).to(p.dtype)


def agree(*mine: bool) -> list[bool]:
    """For each flag, whether it is set on at least one process."""
    if world_size() == 1:
        return list(mine)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    said = torch.tensor(mine, dtype=torch.int32, device=device)
    dist.all_reduce(said, op=dist.ReduceOp.MAX)
    return [bool(x) for x in said.tolist()]


def union(mine: Mapping[str, str]) -> dict[str, str]:
    """Merge the entries of all processes; every process must call it."""
    if world_size() == 1:
        return dict(mine)
    parts: list[Any] = [None] * world_size()
    dist.all_gather_object(parts, dict(mine))
    return {name: text for part in parts for name, text in part.items()}


def wait() -> None:
    """Wait until all processes are here."""
    if world_size() > 1:
        dist.barrier()


def run_on_rank0(fn: Callable[[], T]) -> T:
    """Run `fn` on rank 0 and broadcast its result. If it raises, every rank raises; UserErrors keep their type."""
    if world_size() == 1:
        return fn()
    outcome: list[Any] = [None, None]
    if rank() == 0:
        try:
            outcome[0] = fn()
        except UserError as error:
            outcome[1] = error
        except Exception as error:
            dist.broadcast_object_list([None, RuntimeError(f"on rank 0: {type(error).__name__}: {error}")])
            raise
    dist.broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def lost_peer(error: RuntimeError) -> bool:
    """Whether an error raised by a collective means that another process has ended."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
