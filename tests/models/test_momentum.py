import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dualtemp.models import MomentumCopy, build_backbone


def small_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


@settings(max_examples=30)
@given(momentum=st.floats(0, 1), steps=st.integers(1, 4))
def test_it_follows_as_a_float64_loop_would(momentum: float, steps: int) -> None:
    source = small_network()
    followers = MomentumCopy(source)
    expected = {name: p.detach().double() for name, p in source.named_parameters()}
    for seed in range(steps):
        moved = small_network(seed + 1)
        followers.follow(moved, momentum)
        for name, p in moved.named_parameters():
            expected[name] = momentum * expected[name] + (1 - momentum) * p.detach().double()
    for name, p in followers.module.named_parameters():
        torch.testing.assert_close(p.double(), expected[name], atol=1e-6, rtol=1e-6)


def test_momentum_one_stays_and_zero_takes_the_source_to_the_bit() -> None:
    source, other = small_network(), small_network(1)
    follower = MomentumCopy(source)
    follower.follow(other, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(follower.parameters(), source.parameters(), strict=True))
    follower.follow(other, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(follower.parameters(), other.parameters(), strict=True))


def test_its_batch_norm_statistics_are_its_own() -> None:
    source = small_network()
    follower = MomentumCopy(source.eval())
    assert follower.module.training
    x = 5 + torch.randn(16, 3)
    follower(x)
    reference = copy.deepcopy(source).train()
    reference(x)
    norm = follower.module.get_submodule("1")
    assert not source.get_buffer("1.running_mean").any()
    assert torch.equal(norm.get_buffer("running_mean"), reference.get_buffer("1.running_mean"))
    follower.follow(source, 0.5)
    assert torch.equal(norm.get_buffer("running_mean"), reference.get_buffer("1.running_mean"))


def test_it_never_has_gradients_and_the_source_keeps_its_own() -> None:
    source = small_network()
    follower = MomentumCopy(source)
    out = follower(torch.randn(4, 3, requires_grad=True))
    assert not out.requires_grad
    assert not any(p.requires_grad for p in follower.parameters())
    assert all(p.requires_grad for p in source.parameters())
    source(torch.randn(4, 3)).sum().backward()
    follower.follow(source, 0.9)
    assert not any(p.requires_grad for p in follower.parameters())
    assert all(p.grad is not None for p in source.parameters())


def test_the_state_dict_brings_back_parameters_and_statistics() -> None:
    follower = MomentumCopy(small_network())
    follower(torch.randn(8, 3))
    again = MomentumCopy(small_network(1))
    again.load_state_dict(follower.state_dict(), strict=True)
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), follower.state_dict().values()))  # noqa: B905


def test_a_backbone_can_be_copied_and_followed() -> None:
    source = build_backbone("resnet_mini", 32, seed=0)
    follower = MomentumCopy(source)
    moved = build_backbone("resnet_mini", 32, seed=1)
    follower.follow(moved, 0.25)
    a, b, c = (m.get_parameter("layer3.0.conv2.weight") for m in (source, moved, follower.module))
    torch.testing.assert_close(c, 0.25 * a + 0.75 * b)


@pytest.mark.parametrize("momentum", [-0.1, 1.1, float("nan")])
def test_a_momentum_outside_zero_to_one_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum must be from 0 to 1"):
        MomentumCopy(small_network()).follow(small_network(), momentum)


def test_another_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match="differ in number or shape"):
        MomentumCopy(small_network()).follow(nn.Linear(3, 4), 0.9)
