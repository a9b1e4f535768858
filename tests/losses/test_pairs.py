"""Two towers and several positives against the brute force: value, gradients of embeddings and of the temperature."""

import math
from collections.abc import Callable

import brute_force_pairs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dualtemp import losses
from dualtemp.losses import product_plan

TAU = st.one_of(st.just(0.01), st.floats(0.01, 0.05), st.floats(0.05, 2))
TAU_BETA = st.one_of(st.none(), TAU, st.just(math.inf))
DTYPE = st.sampled_from([torch.float64, torch.float32])
TILING = st.sampled_from([(1 << 18, 1 << 24), (24, 1 << 24), (24, 0)])


@pytest.fixture(autouse=True)
def _restore_tiling():
    before = product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS
    yield
    product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS = before
    product_plan.plan_of_pairs.cache_clear()


def tile(tiling: tuple[int, int]) -> None:
    product_plan.plan_of_pairs.cache_clear()
    product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS = tiling


def drawn(seed: int, N: int, D: int, dtype: torch.dtype, close: bool) -> tuple[Tensor, Tensor, torch.Generator]:
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, N, D, generator=g, dtype=torch.float64)
    if close:  # positives at cosine 1, some rows the same
        b = 2 * a
        a[N // 2] = a[0]
    return a.to(dtype).requires_grad_(), b.to(dtype).requires_grad_(), g


def compare(
    ours: Callable[..., Tensor], brute: Callable[..., Tensor], a: Tensor, b: Tensor, tau: float, lowest: float
) -> None:
    """Value per pair, and the gradient of an uneven sum for both embeddings and for tau."""
    dtype = a.dtype
    eps = torch.finfo(dtype).eps
    leaves = (a, b, torch.tensor(tau, dtype=dtype, requires_grad=True))
    precise = [x.detach().double().requires_grad_() for x in leaves]
    value, expected = ours(*leaves), brute(*precise)
    off = 64 * eps * (1 + 1 / lowest)
    torch.testing.assert_close(value.double(), expected, rtol=off, atol=off)
    uneven = torch.linspace(0.5, 2, len(value), dtype=torch.float64)
    gradients = torch.autograd.grad((value * uneven.to(value)).sum(), leaves, materialize_grads=True)
    references = torch.autograd.grad((expected * uneven).sum(), precise, materialize_grads=True)
    for x, gradient, reference in zip(leaves, gradients, references, strict=True):
        assert gradient.isfinite().all()
        length = x.detach().double().norm(dim=-1, keepdim=True)
        worst = ((gradient.double() - reference) * length).abs().max().item()
        scale = max(1.0, (reference * length).abs().max().item())
        assert worst <= off * (scale + len(value) / tau), f"off by {worst} at scale {scale}"


@given(
    seed=st.integers(0, 2**31),
    N=st.integers(2, 12),
    D=st.integers(1, 8),
    tau=TAU,
    tau_beta=TAU_BETA,
    without=st.sets(st.sampled_from(["ids", "labels", "padding_mask", "mask"])),
    weighted=st.booleans(),
    both_directions=st.booleans(),
    both_views=st.booleans(),
    close=st.booleans(),
    dtype=DTYPE,
    tiling=TILING,
)
@settings(max_examples=60)
def test_two_towers(
    seed, N, D, tau, tau_beta, without, weighted, both_directions, both_views, close, dtype, tiling
) -> None:
    tile(tiling)
    a, b, g = drawn(seed, N, D, dtype, close)
    given = {
        "ids": torch.randint(max(N // 2, 1), (N,), generator=g),
        "labels": torch.randint(3, (N,), generator=g),
        "padding_mask": torch.rand(N, generator=g) < 0.3,
        "mask": torch.rand(N, N, generator=g) < 0.4,
    }
    given = {name: value for name, value in given.items() if name in without}
    excluded = torch.zeros(N, N, dtype=torch.bool)
    for name, x in given.items():
        excluded |= x if name == "mask" else x[:, None] | x if name == "padding_mask" else x[:, None] == x
    weight = torch.rand(N, generator=g, dtype=dtype) if weighted else None

    def brute(a: Tensor, b: Tensor, tau: Tensor) -> Tensor:
        value = brute_force_pairs.two_towers(a, b, tau, tau_beta, excluded, both_directions, both_views)[0].mean(0)
        return value if weight is None else value * weight.double()

    def ours(a: Tensor, b: Tensor, tau: Tensor, reduction="none") -> Tensor:
        options = {"both_directions": both_directions, "both_views": both_views, "reduction": reduction}
        return losses.two_towers(a, b, tau, tau_beta, **given, pair_weight=weight, **options)  # pyright: ignore

    compare(ours, brute, a, b, tau, min(tau, tau_beta or tau))
    value, counted = brute_force_pairs.two_towers(a, b, tau, tau_beta, excluded, both_directions, both_views)
    each = counted.double() * (1 if weight is None else weight.double())
    mean = (value * each).sum() / each.sum() if each.sum() else torch.zeros((), dtype=torch.float64)
    off = 64 * torch.finfo(dtype).eps * (1 + 1 / min(tau, tau_beta or tau))
    torch.testing.assert_close(ours(a, b, torch.tensor(tau, dtype=dtype), "mean").double(), mean, rtol=off, atol=off)


@given(
    seed=st.integers(0, 2**31),
    N=st.integers(1, 12),
    D=st.integers(1, 8),
    classes=st.integers(1, 6),
    tau=TAU,
    tau_beta=TAU_BETA,
    views=st.sampled_from(["one", "both", "both, one direction", "other", "other, one direction"]),
    padded=st.booleans(),
    weighted=st.booleans(),
    close=st.booleans(),
    dtype=DTYPE,
    tiling=TILING,
)
@settings(max_examples=60)
def test_supervised_contrastive(
    seed, N, D, classes, tau, tau_beta, views, padded, weighted, close, dtype, tiling
) -> None:
    tile(tiling)
    a, b, g = drawn(seed, N, D, dtype, close)
    labels = torch.randint(classes, (N,), generator=g)
    padding = torch.rand(N, generator=g) < 0.3 if padded else torch.zeros(N, dtype=torch.bool)
    weight = torch.rand(N, generator=g, dtype=dtype) if weighted else torch.ones(N, dtype=dtype)
    there = ~(padding[:, None] | padding)
    directions = 1 if views == "one" or "one direction" in views else 2

    def each(a: Tensor, b: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        if views == "one":
            found = [brute_force_pairs.supervised(a, a, labels, labels, tau, tau_beta, there & ~torch.eye(N).bool())]
        elif views.startswith("both"):
            z, twice = torch.cat((a, b)), labels.repeat(2)
            exists = there.repeat(2, 2) & ~torch.eye(2 * N).bool()
            n = directions * N
            found = [brute_force_pairs.supervised(z[:n], z, twice[:n], twice, tau, tau_beta, exists[:n])]
        else:
            found = [
                brute_force_pairs.supervised(x, y, labels, labels, tau, tau_beta, there)
                for x, y in ((a, b), (b, a))[:directions]
            ]
        value, counted = (torch.cat(x).view(directions, N) for x in zip(*found, strict=True))
        return value * weight.double(), counted * weight.double()

    def ours(a: Tensor, b: Tensor, tau: Tensor | float, reduction="none") -> Tensor:
        return losses.supervised_contrastive(
            a,
            None if views == "one" else b,
            labels,
            tau,
            tau_beta,
            padding_mask=padding if padded else None,
            pair_weight=weight if weighted else None,
            both_directions=directions == 2,
            both_views=views.startswith("both"),
            reduction=reduction,  # pyright: ignore
        )

    lowest = min(tau, tau_beta or tau)
    compare(ours, lambda *x: each(*x)[0].mean(0), a, b, tau, lowest)
    value, weights = each(a, b, tau)  # pyright: ignore
    mean = value.sum() / weights.sum() if weights.sum() else torch.zeros((), dtype=torch.float64)
    off = 64 * torch.finfo(dtype).eps * (1 + 1 / lowest)
    torch.testing.assert_close(ours(a, b, tau, "mean").double(), mean, rtol=off, atol=off)
