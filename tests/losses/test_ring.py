"""Keys that pass from process to process give what gathered ones give, in memory that does not grow with them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import several_processes

from dualtemp import distributed, losses

Case = tuple[dict[str, Any], str]  # settings of `dual_temperature`, and which of q and k learn
CASES: dict[str, Case] = {
    "SimCo": ({}, "qk"),
    "one direction": ({"both_directions": False}, "qk"),
    "both views": ({"both_views": True}, "qk"),
    "both views, one direction": ({"both_views": True, "both_directions": False}, "qk"),
    "detached keys": ({"both_directions": False}, "q"),
    "detached keys, both views": ({"both_views": True}, "q"),
    "keys alone": ({"both_directions": False}, "k"),
    "low tau": ({"tau_alpha": 0.01, "tau_beta": 0.02}, "qk"),
    "tau_beta inf": ({"tau_beta": float("inf")}, "qk"),
}


def embeddings(n: int, seed: int = 1) -> tuple[Tensor, Tensor]:
    """This process's part (n, 6) of both views; the whole without a group."""
    g, world = torch.Generator().manual_seed(seed), distributed.world_size()
    mine = slice(distributed.rank() * n, (distributed.rank() + 1) * n)
    q, k = torch.randn(2, n * world, 6, generator=g, dtype=torch.float64)
    return q[mine].clone(), k[mine].clone()


def outcome(case: Case, n: int, gather: Any) -> dict[str, Any]:
    """Value, statistics, and the gradient of a sum with uneven weights, of which the mean is one case."""
    options, learning = case
    q, k = embeddings(n)
    leaves = q.requires_grad_("q" in learning), k.requires_grad_("k" in learning)
    stats: dict[str, Tensor] = {}
    each = losses.dual_temperature(q, k, **options, gather=gather, reduction="none", stats=stats)
    first = n * distributed.rank()
    (each * torch.arange(first + 1.0, first + n + 1)).sum().backward()
    return {"each": each.detach(), "r_pos": stats["r_pos"], "gradients": [x.grad for x in leaves]}


def both_ways() -> dict[str, Any]:
    """Each case gathered and by ring; one pair on each process; unequal batches."""
    found: dict[str, Any] = {name: [outcome(case, 3, g) for g in (True, "ring")] for name, case in CASES.items()}
    found["one pair each"] = [outcome(CASES["both views"], 1, g) for g in (True, "ring")]
    found["mean"] = [losses.nt_xent(*embeddings(3), gather=g) for g in (True, "ring")]
    found["said"] = ""
    try:
        losses.dual_temperature(*embeddings(2 + distributed.rank()), gather="ring")
    except ValueError as error:
        found["said"] = str(error)
    return found


@pytest.mark.parametrize("world", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
@pytest.mark.slow
def test_passing_keys_give_what_gathered_keys_give(world: int, tmp_path: Path) -> None:
    for found in several_processes.run(__file__, "both_ways", world, tmp_path / "out"):
        for name in (*CASES, "one pair each"):
            gathered, passed = found[name]
            for key in ("each", "r_pos"):
                torch.testing.assert_close(passed[key], gathered[key], rtol=1e-12, atol=1e-13, msg=f"{name}: {key}")
            for ours, right in zip(passed["gradients"], gathered["gradients"], strict=True):
                if right is None:
                    assert ours is None
                    continue
                scale = right.abs().max().item()
                assert scale > 1e-6
                torch.testing.assert_close(ours, right, rtol=0, atol=1e-12 * scale, msg=f"{name}: gradient")
        torch.testing.assert_close(*found["mean"], rtol=1e-13, atol=0)
        assert found["said"].startswith("gather: every process must bring the same local batch, got shapes [(2, 6)")


def test_without_other_processes_a_ring_is_the_batch_itself() -> None:
    q, k = embeddings(6)
    assert torch.equal(losses.dual_temperature(q, k, gather="ring"), losses.dual_temperature(q, k))


@pytest.mark.parametrize("gather", ["rings", 1, None])
def test_other_ways_to_gather_are_refused(gather: Any) -> None:
    with pytest.raises(ValueError, match="gather must be False, True or 'ring', got"):
        losses.dual_temperature(*embeddings(4), gather=gather)


PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from dualtemp import distributed, losses

torch.set_num_threads(1)
N, world, gather = 256, 64, {"gathered": True, "ring": "ring"}[sys.argv[1]]
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
def step(gather, N):
    q, k = (torch.randn(N, 256, requires_grad=True) for _ in range(2))
    with distributed.equal_batches():
        losses.dual_temperature(q, k, gather=gather).backward()
    assert q.grad.shape == k.grad.shape == (N, 256)
dist.init_process_group("fake", rank=5, world_size=world, store=FakeStore())
step(gather, 8)
before = status("VmRSS")
step(gather, N)
print((status("VmHWM") - before) / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_sixty_four_processes() -> None:
    """Nothing is sent in a fake group: shapes and memory are right, values are not."""
    block = 256 * 2 * 256 * 4 / 2**20  # MiB of one process's two views
    found = {
        way: float(
            subprocess.run(
                [sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, check=True, timeout=300
            ).stdout
        )
        for way in ("gathered", "ring")
    }
    assert found["gathered"] > 2 * 64 * block  # keys and their gradient
    assert found["ring"] < 32 * block
