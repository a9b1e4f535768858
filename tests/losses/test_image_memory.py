"""Numbers that are kept per image: what is written, what is saved, and what nothing may spoil."""

import copy
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import several_processes

from dualtemp import distributed, losses
from dualtemp.losses import ImageMemory, ImageTemperatures
from dualtemp.losses.image_memory import UNSEEN

N, IMAGES, STEPS = 12, 30, 4
KINDS = {"memory": ImageMemory, "per_image": ImageTemperatures}


def pairs(seed: int, dtype: torch.dtype = torch.float32, n: int = N) -> tuple[Tensor, Tensor]:
    q, k = torch.randn(2, n, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    return q, k


def drawn(seed: int) -> Tensor:
    return torch.randperm(IMAGES, generator=torch.Generator().manual_seed(seed))[:N]


def trained(kind: str) -> losses.DualTemperatureLoss:
    criterion = losses.DualTemperatureLoss(weight=kind, images=IMAGES)
    for step in range(STEPS):
        criterion(*pairs(step), index=drawn(step))
    return criterion


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_keeps_what_a_loss_remembers(kind: str) -> None:
    criterion, file = trained(kind), io.BytesIO()
    torch.save(criterion.state_dict(), file)
    file.seek(0)
    other = losses.DualTemperatureLoss(weight=kind, images=IMAGES)
    other.load_state_dict(torch.load(file, weights_only=True))
    q, k = pairs(STEPS)
    assert torch.equal(other(q, k, index=drawn(STEPS)), criterion(q, k, index=drawn(STEPS)))
    assert all(torch.equal(x, y) for x, y in zip(other.buffers(), criterion.buffers(), strict=True))
    assert copy.deepcopy(criterion)(q, k, index=drawn(0)) == criterion(q, k, index=drawn(0))


def test_a_memory_takes_four_bytes_an_image_and_direction_and_temperatures_twelve() -> None:
    for kind, numbers in ((ImageMemory, 1), (ImageTemperatures, 3)):
        for directions in (1, 2):
            buffers = list(kind(1000, directions=directions).buffers())
            assert sum(b.numel() * b.element_size() for b in buffers) == 4 * 1000 * directions * numbers


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_images_of_a_step_are_written_and_in_eval_mode_none(kind: str) -> None:
    criterion: Any = losses.DualTemperatureLoss(weight=kind, images=IMAGES)
    q, k = pairs(0)
    criterion(q, k, index=drawn(0))
    log_u = criterion.weigh.log_u
    seen = (log_u != UNSEEN).all(0).nonzero().flatten()
    assert seen.tolist() == sorted(drawn(0).tolist())
    assert log_u.isfinite().all()
    before = [b.clone() for b in criterion.buffers()]
    criterion.eval()
    value = criterion(*pairs(1), index=drawn(0))
    assert all(torch.equal(x, y) for x, y in zip(criterion.buffers(), before, strict=True))
    assert criterion.train()(*pairs(1), index=drawn(0)) == value
    assert not torch.equal(criterion.weigh.log_u, before[0])


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_shown_twice_in_a_step_is_written_once_whatever_the_order(kind: str) -> None:
    (q, k), index = pairs(0), drawn(0)
    index[5] = index[2]
    order = torch.randperm(N, generator=torch.Generator().manual_seed(1))
    found = []
    for rows in (torch.arange(N), order):
        criterion = losses.DualTemperatureLoss(weight=kind, images=IMAGES).double()
        for _ in range(2):
            criterion(q[rows].double(), k[rows].double(), index=index[rows])
        found.append(list(criterion.buffers()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_overflows_spoils_no_memory(kind: str) -> None:
    criterion = trained(kind)
    before = [b.clone() for b in criterion.buffers()]
    q, k = pairs(STEPS)
    criterion(q * torch.tensor(float("inf")), k, index=drawn(STEPS))
    assert all(torch.equal(x, y) for x, y in zip(criterion.buffers(), before, strict=True))
    assert criterion(q, k, index=drawn(STEPS)).isfinite()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.01, 0.1])
def test_all_is_finite_at_low_temperatures_for_the_easiest_and_the_hardest_pairs(kind: str, tau: float) -> None:
    for factor in (1.0, -1.0):
        low = KINDS[kind](N, 0.3) if kind == "memory" else ImageTemperatures(N, 0.3, tau_min=0.005)
        for step in range(4):
            q, _ = pairs(step)
            q.requires_grad_()
            stats: dict[str, Tensor] = {}
            keys = factor * q.detach() if step % 2 else -factor * q.detach()
            loss = losses.dual_temperature(q, keys, tau, weight=low, index=torch.arange(N), stats=stats)
            (gradient,) = torch.autograd.grad(loss, q)
            assert loss.isfinite()
            assert gradient.isfinite().all()
            assert all(x.isfinite().all() for x in stats.values())
            assert stats["W"].max() <= 1 / 0.3 * (1 if kind == "memory" else 70) * (1 + 1e-4)
        assert all(b.isfinite().all() for b in low.buffers())


def test_temperatures_stay_within_their_bounds_and_follow_rho() -> None:
    ends = {}
    for rho in (0.0, 5.0):
        weight = ImageTemperatures(N, rho=rho, tau_min=0.08, tau_max=0.3, tau_lr=0.5)
        for step in range(30):
            losses.dual_temperature(*pairs(step % 3), 0.1, weight=weight, index=torch.arange(N))
        assert weight.tau.min() >= 0.08 - 1e-6
        assert weight.tau.max() <= 0.3 + 1e-6
        ends[rho] = weight.tau.mean()
    assert ends[0.0] > ends[5.0]


def test_half_precision_leaves_the_memory_as_it_is_and_float64_is_taken() -> None:
    model = nn.ModuleDict({"head": nn.Linear(2, 2), "loss": trained("memory")})
    before = model["loss"].weigh.log_u.clone()  # pyright: ignore
    assert model.half()["head"].weight.dtype == torch.float16
    assert torch.equal(model["loss"].weigh.log_u, before)  # pyright: ignore
    assert model.bfloat16()["loss"].weigh.log_u.dtype == torch.float32  # pyright: ignore
    assert model.double()["loss"].weigh.log_u.dtype == torch.float64  # pyright: ignore


def steps_of_all_processes() -> dict[str, list]:
    """Values, gradients, weights and buffers of some steps, of this process's part of each batch."""
    results: dict[str, list] = {}
    n = N // distributed.world_size()
    mine = slice(distributed.rank() * n, (distributed.rank() + 1) * n)
    for name, kind in KINDS.items():
        cases: list[dict[str, Any]] = [{}, {"both_views": True}, {"both_directions": False}]
        for options in cases:
            weight, found = kind(IMAGES, 0.6, 1 + options.get("both_directions", True)).double(), []
            for step in range(STEPS):
                q, k = (x[mine].clone().requires_grad_() for x in pairs(step, torch.float64))
                index, stats = drawn(step), {}
                index[4] = index[9]  # one image on two processes
                loss = losses.dual_temperature(
                    q, k, 0.1, weight=weight, index=index[mine], gather=True, stats=stats, **options
                )
                gradients = torch.autograd.grad(loss, (q, k))
                found.append((loss.detach(), *(g / distributed.world_size() for g in gradients), stats["W"]))
            results[f"{name} {options}"] = [found, [b.clone() for b in weight.buffers()]]
    return results


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_every_process_ends_with_the_memory_of_one_process(world: int, tmp_path: Path) -> None:
    one = steps_of_all_processes()
    ranks = several_processes.run(__file__, "steps_of_all_processes", world, tmp_path / "out")
    for name, (steps, buffers) in one.items():
        for rank in ranks:
            for found, first, expected in zip(rank[name][1], ranks[0][name][1], buffers, strict=True):
                assert torch.equal(found, first)
                torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
        for step, (loss, q, k, W) in enumerate(steps):
            parts = [rank[name][0][step] for rank in ranks]
            for part in parts:
                torch.testing.assert_close(part[0], loss, rtol=1e-11, atol=1e-11)
            for place, whole in ((1, q), (2, k)):
                torch.testing.assert_close(torch.cat([part[place] for part in parts]), whole, rtol=1e-10, atol=1e-11)
            torch.testing.assert_close(torch.cat([part[3] for part in parts], -1), W, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize(
    ("default", "expected"),
    [(torch.float64, torch.float64), (torch.float16, torch.float32), (torch.bfloat16, torch.float32)],
)
def test_the_memory_has_the_default_type_but_never_half_precision(
    kind: type[ImageMemory], default: torch.dtype, expected: torch.dtype
) -> None:
    torch.set_default_dtype(default)
    try:
        buffers = dict(kind(3).named_buffers())
        assert {buffer.dtype for buffer in buffers.values()} == {expected}
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_loss_inside_a_checkpointed_part_is_refused_where_it_would_remember_twice(kind: type[ImageMemory]) -> None:
    weight = kind(IMAGES)
    q, k = (x.requires_grad_() for x in pairs(0))

    def loss(q: Tensor, k: Tensor) -> Tensor:
        return losses.dual_temperature(q, k, 0.1, weight=weight, index=drawn(0))

    value = checkpoint(loss, q, k, use_reentrant=False)
    once = weight.log_u.clone()
    with pytest.raises(RuntimeError, match="leave the loss outside the checkpointed part"):
        value.backward()  # pyright: ignore
    assert torch.equal(weight.log_u, once)
    weight.eval()  # nothing is written, so nothing can be written twice
    checkpoint(loss, q, k, use_reentrant=False).backward()  # pyright: ignore
    expected = torch.autograd.grad(loss(q, k), q)[0]
    assert q.grad is not None
    torch.testing.assert_close(q.grad, expected)
