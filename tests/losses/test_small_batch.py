"""A small batch takes a shorter way, with the same bits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from dualtemp import losses
from dualtemp.losses import constants, in_batch_loss, product_plan, similarity, small_batch, tower_pairs


@given(
    seed=st.integers(0, 2**31),
    N=st.integers(2, 40),
    D=st.integers(1, 40),
    tau=st.sampled_from([(0.1, 1.0), (0.05, math.inf), (0.1, 0.1), (0.3, 0.05), (0.02, 0.5)]),
    both_directions=st.booleans(),
    normalize=st.booleans(),
    detached=st.booleans(),
    weight=st.sampled_from(["sigmoid", "equal"]),
    reduction=st.sampled_from(["mean", "none"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    scale=st.sampled_from([1.0, 0.37, 65536.0]),
)
@settings(max_examples=60)
def test_a_small_batch_has_the_bits_of_the_general_way(
    seed, N, D, tau, both_directions, normalize, detached, weight, reduction, dtype, scale
) -> None:
    g = torch.Generator().manual_seed(seed)
    q, k = (torch.nn.functional.normalize(torch.randn(N, D, generator=g, dtype=dtype)) for _ in range(2))
    q.requires_grad_()
    k.requires_grad_(not detached)
    options = {"both_directions": both_directions, "normalize": normalize, "weight": weight, "reduction": reduction}
    temperatures = tau if weight == "sigmoid" else tau[:1]

    def results() -> list:
        made = []
        for loss in (losses.dual_temperature, losses.two_towers):
            stats: dict = {}
            value = loss(q, k, *temperatures, **options, stats=stats)
            leaves = [x for x in (q, k) if x.requires_grad]
            made += [value.detach(), *stats.values(), *torch.autograd.grad(value.sum() * scale, leaves)]
        return made

    short = results()
    with pytest.MonkeyPatch.context() as patched:
        for module in (in_batch_loss, tower_pairs):
            patched.setattr(module, "small_batch_loss", lambda *_, **__: None)
        patched.setattr(similarity.Plan, "is_one_tile", lambda *_: False)
        general = results()
    assert len(short) == len(general)
    assert all(map(torch.equal, short, general))


def test_a_small_batch_is_one_node_of_the_graph() -> None:
    q, k = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = losses.dual_temperature(q, k)
    assert loss.grad_fn is not None
    assert [type(node).__name__ for node, _ in loss.grad_fn.next_functions if node] == ["UnbindBackward0"] * 2


def step(N: int = 9) -> list[torch.Tensor]:
    """Value and gradients of a step."""
    q, k = (x.requires_grad_() for x in torch.randn(2, N, 16, generator=torch.Generator().manual_seed(N)).unbind())
    loss = losses.dual_temperature(q, k)
    return [loss.detach(), *torch.autograd.grad(loss, (q, k))]


@pytest.mark.parametrize("N", [2, 9, 64])
def test_constants_that_are_tensors_change_no_bit(N, monkeypatch) -> None:
    as_tensors = step(N)
    for module in (constants, small_batch):
        monkeypatch.setattr(module, "can_remember", lambda _: False)
    monkeypatch.setattr(small_batch, "mean_of", torch.mean)
    assert all(map(torch.equal, as_tensors, step(N)))


def test_constants_of_a_trace_are_not_remembered() -> None:
    expected = step()
    for remembered in (product_plan.plan_of_pairs, constants._remembered):
        remembered.cache_clear()
    with FakeTensorMode():
        q, k = (torch.randn(9, 16, requires_grad=True) for _ in range(2))
        losses.dual_temperature(q, k)
    assert all(map(torch.equal, expected, step()))


@pytest.mark.parametrize("weight", ["sigmoid", "equal"])
def test_numbers_remembered_from_inference_mode_serve_a_training_step(weight: str) -> None:
    q, k = (torch.randn(9, 16, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
    tau = 0.0917  # of no other test, so that its numbers are made in inference mode
    with torch.inference_mode():
        value = losses.dual_temperature(q, k, tau, weight=weight)
    loss = losses.dual_temperature(q.requires_grad_(), k, tau, weight=weight)
    loss.backward()
    assert loss.item() == pytest.approx(value.item(), rel=1e-6)
    assert q.grad is not None
    assert q.grad.isfinite().all()
