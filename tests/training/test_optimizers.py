"""Optimisers and the schedule, against independent computations."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dualtemp.training.optimizers import build_optimizer, set_lr
from dualtemp.training.schedule import highest_lr, lr_factor, step_seed


def module() -> nn.Module:
    torch.manual_seed(0)
    last = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(last.weight)  # a norm of zero has no ratio
    return nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), last).double()


def gradients(of: nn.Module, step: int) -> list[Tensor]:
    torch.manual_seed(100 + step)
    return [torch.randn_like(p) for p in of.parameters()]


def stepped(name: str, weight_decay: float) -> list[list[float]]:
    made = module()
    optimizer = build_optimizer(name, made, 0.9, weight_decay)
    for step in range(5):
        set_lr(optimizer, 0.3 / (1 + step))
        for p, g in zip(made.parameters(), gradients(made, step), strict=True):
            p.grad = g
        optimizer.step()
    return [p.detach().flatten().tolist() for p in made.parameters()]


def norm(values: list[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in values))


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_lars_steps_as_a_loop_written_by_hand(weight_decay: float) -> None:
    made = module()
    weights = [p.detach().flatten().tolist() for p in made.parameters()]
    velocity = [[0.0] * len(w) for w in weights]
    for step in range(5):
        for i, (p, g) in enumerate(zip(made.parameters(), gradients(made, step), strict=True)):
            matrix, gradient = p.ndim > 1, g.flatten().tolist()
            if matrix:
                gradient = [x + weight_decay * w for x, w in zip(gradient, weights[i], strict=True)]
                ratio = 0.001 * norm(weights[i]) / norm(gradient) if norm(weights[i]) > 0 else 1.0
                gradient = [ratio * x for x in gradient]
            velocity[i] = [0.9 * v + x for v, x in zip(velocity[i], gradient, strict=True)]
            weights[i] = [w - 0.3 / (1 + step) * v for w, v in zip(weights[i], velocity[i], strict=True)]
    for found, expected in zip(stepped("lars", weight_decay), weights, strict=True):
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_sgd_decays_everything_as_torch_does() -> None:
    made = module()
    optimizer = torch.optim.SGD(made.parameters(), lr=1.0, momentum=0.9, weight_decay=0.01)
    for step in range(5):
        optimizer.param_groups[0]["lr"] = 0.3 / (1 + step)
        for p, g in zip(made.parameters(), gradients(made, step), strict=True):
            p.grad = g
        optimizer.step()
    assert stepped("sgd", 0.01) == [p.detach().flatten().tolist() for p in made.parameters()]


def test_adamw_decays_weights_alone() -> None:
    made = module()
    groups = [{"params": [p], "weight_decay": 0.01 if p.ndim > 1 else 0.0} for p in made.parameters()]
    optimizer = torch.optim.AdamW(groups)
    for step in range(5):
        for group in optimizer.param_groups:
            group["lr"] = 0.3 / (1 + step)
        for p, g in zip(made.parameters(), gradients(made, step), strict=True):
            p.grad = g
        optimizer.step()
    for found, expected in zip(stepped("adamw", 0.01), made.parameters(), strict=True):
        assert found == pytest.approx(expected.detach().flatten().tolist(), rel=1e-12)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize(("steps", "warmup"), [(200, 10), (50, 1), (30, 0), (12, 11)])
def test_the_rate_is_a_linear_warm_up_and_a_cosine(steps: int, warmup: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps - warmup)
    expected = []
    for _ in range(steps - warmup):
        expected.append(optimizer.param_groups[0]["lr"])
        cosine.step()
    if warmup:
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        linear = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup, 1.0, max(warmup - 1, 1))
        rising = []
        for _ in range(warmup):
            rising.append(optimizer.param_groups[0]["lr"])
            linear.step()
        expected = rising + expected
    assert [lr_factor(step, steps, warmup) for step in range(steps)] == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 500), st.integers(0, 600))
def test_the_rate_is_positive_and_never_above_the_highest(steps: int, warmup: int) -> None:
    factors = [lr_factor(step, steps, warmup) for step in range(steps)]
    assert all(0 < factor <= 1 for factor in factors)


def test_the_rate_is_quoted_at_batch_256() -> None:
    assert highest_lr(0.03, 256) == 0.03
    assert highest_lr(0.03, 1024) == pytest.approx(0.12)


@given(st.integers(0, 2**80), st.integers(0, 2**40), st.integers(0, 2**20))
def test_a_step_has_a_seed_that_torch_takes_and_no_other_step_has(seed: int, step: int, rank: int) -> None:
    torch.Generator().manual_seed(step_seed(seed, step, rank))
    others = {step_seed(seed + 1, step, rank), step_seed(seed, step + 1, rank), step_seed(seed, step, rank + 1)}
    assert len(others | {step_seed(seed, step, rank)}) == 4
