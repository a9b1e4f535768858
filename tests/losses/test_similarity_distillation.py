"""A teacher's similarities against the brute force, on one process and on two, and in little memory."""

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import brute_force
import several_processes

from dualtemp import distributed
from dualtemp.losses import product_plan
from dualtemp.losses.similarity_distillation import similarity_distillation

TAU = st.one_of(st.just(0.02), st.floats(0.02, 2))


@pytest.fixture(autouse=True)
def _restore_tiling() -> Iterator[None]:
    before = product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS
    yield
    product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS = before


def drawn(N: int, D: int, F: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    q, k, t = (torch.randn(N, width, generator=g, dtype=torch.float64) for width in (D, D, F))
    return (3 * q).to(dtype).requires_grad_(), k.to(dtype).requires_grad_(), (t + 0.5).to(dtype)


@given(
    N=st.integers(2, 9),
    F=st.integers(1, 7),
    tau_teacher=TAU,
    tau_student=TAU,
    dtype=st.sampled_from([torch.float64, torch.float32]),
    tiling=st.sampled_from([(1 << 18, 1 << 24), (12, 1 << 24), (12, 0)]),
    one_view=st.booleans(),
    seed=st.integers(0, 99),
)
def test_value_and_gradient_are_those_of_the_brute_force(
    N: int,
    F: int,
    tau_teacher: float,
    tau_student: float,
    dtype: torch.dtype,
    tiling: tuple[int, int],
    one_view: bool,
    seed: int,
) -> None:
    product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS = tiling
    q, k, t = drawn(N, 4, F, dtype, seed)
    precise_q, precise_k = (x.detach().double().requires_grad_() for x in (q, k))
    uneven = torch.linspace(0.5, 2, N, dtype=torch.float64)
    value = similarity_distillation(q, q if one_view else k, t, tau_teacher, tau_student, reduction="none")
    second = precise_q if one_view else precise_k
    expected = brute_force.similarity_distillation(precise_q, second, t, tau_teacher, tau_student)
    (value * uneven.to(dtype)).sum().backward()
    (expected * uneven).sum().backward()
    eps = torch.finfo(dtype).eps * 40 * (1 / tau_student + 1 / tau_teacher) * (1 + 1 / tau_student)
    torch.testing.assert_close(value.double(), expected, rtol=eps, atol=eps)
    for found, wanted in ((q, precise_q), (k, precise_k)):
        assert (found.grad is None) == (wanted.grad is None)
        if wanted.grad is not None and found.grad is not None:
            torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=eps, atol=eps * 3)


def test_a_student_with_the_teachers_similarities_has_nothing_to_learn() -> None:
    t = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    loss = similarity_distillation(t, t, t, 0.2, 0.2)
    loss.backward()
    assert abs(loss.item()) < 1e-12
    assert t.grad is not None
    assert t.grad.abs().max() < 1e-12


def test_at_a_low_temperature_of_the_teacher_its_nearest_image_is_the_positive() -> None:
    q, k, _ = drawn(6, 4, 3, torch.float64)
    angles = torch.tensor([0.0, 0.1, 1.0, 1.15, 2.0, 2.2], dtype=torch.float64)  # pairs that are nearest neighbors
    t = torch.stack((angles.cos(), angles.sin()), 1)
    nearest = torch.tensor([1, 0, 3, 2, 5, 4])
    q1, k1 = brute_force.unit(q), brute_force.unit(k)
    others = (q1 @ k1.T / 0.1).masked_fill(torch.eye(6, dtype=torch.bool), -math.inf)
    back = (k1 @ q1.T / 0.1).masked_fill(torch.eye(6, dtype=torch.bool), -math.inf)
    expected = sum(torch.nn.functional.cross_entropy(each, nearest) for each in (others, back)) / 2
    torch.testing.assert_close(similarity_distillation(q, k, t, 1e-4, 0.1), torch.as_tensor(expected))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"teacher": torch.zeros(3, 4)}, r"teacher must be a floating-point \(6, F\) matrix"),
        ({"teacher": torch.zeros(6, 4, dtype=torch.int64)}, "teacher must be a floating-point"),
        ({"tau_teacher": 0.0}, "tau_teacher must be a number > 0"),
        ({"tau_student": math.inf}, "tau_student must be a number > 0"),
        ({"k": torch.zeros(6, 5)}, "q and k must have the same shape"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict, said: str) -> None:
    q, k, t = drawn(6, 4, 3, torch.float32)
    with pytest.raises(ValueError, match=said):
        similarity_distillation(**{"q": q, "k": k, "teacher": t, **changes})


def value_and_gradients() -> list[Tensor]:
    """Of this process's part of the batch, as the average over processes leaves the gradients."""
    found: list[Tensor] = []
    world, rank = distributed.world_size(), distributed.rank()
    mine = slice(12 // world * rank, 12 // world * (rank + 1))
    for one_view in (False, True):
        q, k, t = drawn(12, 4, 5, torch.float64)
        q, k = (x.detach()[mine].clone().requires_grad_() for x in (q, k))
        loss = similarity_distillation(q, q if one_view else k, t[mine], 0.1, 0.2, gather=True)
        loss.backward()
        found += [loss.detach(), *(x.grad / world for x in (q, k) if x.grad is not None)]
    return found


@pytest.mark.slow
def test_two_processes_with_half_the_batch_each_are_one_with_the_whole(tmp_path: Path) -> None:
    one = value_and_gradients()
    ranks = several_processes.run(__file__, "value_and_gradients", 2, tmp_path / "out")
    for number, whole in enumerate(one):
        parts = [rank[number] for rank in ranks]
        found = torch.cat(parts) if whole.ndim else parts[0]
        torch.testing.assert_close(found, whole, rtol=1e-11, atol=1e-12)


PROGRAM = """
import sys, torch
from dualtemp.losses.similarity_distillation import similarity_distillation
torch.set_num_threads(1)
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) // 1024
def step(n):
    q, k, t = (torch.randn(n, 16, requires_grad=i < 2) for i in range(3))
    similarity_distillation(q, k, t).backward()
    assert q.grad.isfinite().all()
step(64)
before = status("VmRSS")
step(int(sys.argv[1]))
print(status("VmHWM") - before)
"""


@pytest.mark.slow
def test_a_batch_whose_matrix_would_not_fit_takes_little_memory() -> None:
    N = 12288
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(N)], capture_output=True, text=True, check=True)
    assert int(ended.stdout) < (N**2 * 4 >> 20) / 20
