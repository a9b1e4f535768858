"""The learning rate's schedule and the seeds of steps, against independent computations."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dualtemp.training.schedule import highest_lr, lr_factor, step_seed


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
