"""VICReg and Barlow Twins against the papers' formulas in float64, and against lightly's."""

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import brute_force
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dualtemp import losses
from dualtemp.torchvision_operators import declare_missing_operators

Loss = Callable[..., Tensor]
LOSSES: dict[str, Loss] = {"vicreg": losses.vicreg, "barlow_twins": losses.barlow_twins}
BRUTE: dict[str, Loss] = {"vicreg": brute_force.vicreg, "barlow_twins": brute_force.barlow_twins}
NAMES = pytest.mark.parametrize("name", LOSSES)


def two_views(N: int, D: int, seed: int = 0, like: str = "drawn", dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q and k (N, D), leaves: views of the same images, of uneven scales, one dimension nearly another's copy."""
    g = torch.Generator().manual_seed(seed)
    images = torch.randn(N, D, generator=g, dtype=torch.float64) * torch.linspace(0.1, 2, D, dtype=torch.float64)
    images[:, -1] += images[:, 0]
    q, k = (images + 0.3 * torch.randn(N, D, generator=g, dtype=torch.float64) for _ in range(2))
    if like == "all the same":
        q, k = (x[:1].round(decimals=0).expand(N, D).clone() for x in (q, k))  # whose mean is exact
    elif like == "a constant dimension":
        q[:, 0], k[:, 0] = 3.0, -1.0
    elif like == "far from 0":
        q, k = q + 100, k - 100
    elif like == "views alike":
        k = q.clone()
    return [x.to(dtype).requires_grad_() for x in (q, k)]


def value_and_gradients(loss: Loss, leaves: list[Tensor]) -> list[Tensor]:
    value = loss(*leaves)
    assert value.shape == ()
    return [value.detach(), *torch.autograd.grad(value, leaves)]


@NAMES
@given(
    seed=st.integers(0, 2**31),
    N=st.integers(1, 9),
    D=st.integers(1, 4),
    like=st.sampled_from(["drawn", "all the same", "a constant dimension", "far from 0", "views alike"]),
    weights=st.lists(st.sampled_from([0.0, 0.005, 1.0, 25.0]), min_size=3, max_size=3),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
@settings(max_examples=30)
def test_value_and_gradient_are_the_papers(
    name: str, seed: int, N: int, D: int, like: str, weights: list[float], dtype: torch.dtype
) -> None:
    given_weights = weights if name == "vicreg" else weights[:1]
    leaves = two_views(N, D, seed, like, dtype)
    precise = [x.detach().double().requires_grad_() for x in leaves]
    found = value_and_gradients(lambda q, k: LOSSES[name](q, k, *given_weights), leaves)
    expected = value_and_gradients(lambda q, k: BRUTE[name](q, k, *given_weights), precise)
    # Numbers near 100 hold two digits less of what lies around their mean.
    eps = torch.finfo(dtype).eps * (1e4 if like == "far from 0" else 100)
    for x, reference in zip(found, expected, strict=True):
        assert x.dtype == dtype
        assert x.isfinite().all()
        torch.testing.assert_close(x.double(), reference, rtol=0, atol=eps * max(1.0, reference.abs().max().item()))


@pytest.mark.skipif(importlib.util.find_spec("lightly") is None, reason="lightly is not installed (extra: peers)")
@pytest.mark.parametrize(("N", "D"), [(2, 3), (7, 5), (64, 33)])
def test_value_and_gradient_are_lightlys(N: int, D: int) -> None:
    declare_missing_operators()
    from lightly.loss import BarlowTwinsLoss, VICRegLoss

    pairs: list[tuple[Loss, Loss]] = [
        (losses.vicreg, VICRegLoss()),
        (lambda q, k: losses.vicreg(q, k, 3.0, 2.0, 0.5), VICRegLoss(3.0, 2.0, 0.5)),
        (losses.barlow_twins, BarlowTwinsLoss()),
        (lambda q, k: losses.barlow_twins(q, k, 0.1), BarlowTwinsLoss(0.1)),
    ]
    for ours, theirs in pairs:
        leaves = two_views(N, D, like="far from 0")
        for x, y in zip(*(value_and_gradients(loss, leaves) for loss in (ours, theirs)), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-10)


@NAMES
def test_gradients_are_those_of_finite_differences_of_either_view_alone_too(name: str) -> None:
    q, k = two_views(6, 4)
    assert torch.autograd.gradcheck(LOSSES[name], (q, k))
    assert torch.autograd.gradcheck(LOSSES[name], (q, k.detach()))
    assert torch.autograd.gradcheck(LOSSES[name], (q.detach(), k))


@NAMES
@pytest.mark.parametrize("N", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_image_or_equal_images_give_finite_values_and_gradients(name: str, N: int, dtype: torch.dtype) -> None:
    same = torch.full((N, 3), 7.0, dtype=dtype, requires_grad=True)
    value, gradient = value_and_gradients(lambda x: LOSSES[name](x, x), [same])
    assert value.dtype == torch.float32
    assert value == pytest.approx(25 * (1 - 1e-2) if name == "vicreg" else 3.0)
    assert gradient.isfinite().all()


@NAMES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_cost_no_more_than_their_own_rounding(name: str, dtype: torch.dtype) -> None:
    leaves = two_views(32, 8, dtype=dtype)
    expected = value_and_gradients(BRUTE[name], [x.detach().double().requires_grad_() for x in leaves])
    found = value_and_gradients(LOSSES[name], leaves)
    assert [x.dtype for x in found] == [torch.float32, dtype, dtype]
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-5, atol=1e-5)
    for x, reference in zip(found[1:], expected[1:], strict=True):
        atol = 1e-3 * reference.abs().max().item()
        torch.testing.assert_close(x.double(), reference, rtol=2 * torch.finfo(dtype).eps, atol=atol)


@NAMES
def test_autocast_changes_nothing_forward_or_backward(name: str) -> None:
    leaves = two_views(32, 8, dtype=torch.float32)
    expected = value_and_gradients(LOSSES[name], leaves)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = value_and_gradients(LOSSES[name], leaves)
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


class Largest(TorchDispatchMode):
    """Remembers the most elements that any operation gave."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else (made,):
            if isinstance(x, Tensor):
                self.elements = max(self.elements, x.numel())
        return made


@NAMES
@pytest.mark.parametrize(("N", "D"), [(500, 4), (4, 90)])
def test_nothing_is_larger_than_the_embeddings_or_a_few_matrices_of_the_dimensions(name: str, N: int, D: int) -> None:
    leaves = two_views(N, D)
    with Largest() as seen:
        LOSSES[name](*leaves).backward()
    assert 0 < seen.elements <= max(N * D, 2 * D * D)


@NAMES
def test_a_second_derivative_is_refused(name: str) -> None:
    leaves = two_views(6, 4)
    gradients = torch.autograd.grad(LOSSES[name](*leaves), leaves, create_graph=True)
    for gradient in gradients:
        with pytest.raises(RuntimeError, match="no second derivative"):
            gradient.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(gradient.sum(), leaves, retain_graph=True)


def test_the_terms_are_told_and_make_up_the_loss() -> None:
    q, k = two_views(8, 5)
    stats: dict[str, Tensor] = {}
    loss = losses.vicreg(q, k, 2.0, 3.0, 5.0, stats=stats)
    assert not any(term.requires_grad for term in stats.values())
    torch.testing.assert_close(loss.detach(), 2 * stats["invariance"] + 3 * stats["variance"] + 5 * stats["covariance"])
    torch.testing.assert_close(stats["invariance"], torch.nn.functional.mse_loss(q, k).detach())
    stats.clear()
    loss = losses.barlow_twins(q, k, 0.5, stats=stats)
    torch.testing.assert_close(loss.detach(), stats["invariance"] + 0.5 * stats["redundancy"])


def test_modules_are_the_functions_and_their_weights_can_be_set() -> None:
    q, k = two_views(8, 5)
    vicreg, barlow_twins = losses.VICRegLoss(), losses.BarlowTwinsLoss(redundancy=0.1)
    assert vicreg(q, k) == losses.vicreg(q, k)
    assert barlow_twins(q, k) == losses.barlow_twins(q, k, 0.1)
    vicreg.variance = 1.0
    assert vicreg(q, k) == losses.vicreg(q, k, variance=1.0)
    assert "variance=1.0" in repr(vicreg)
    with pytest.raises(ValueError, match="variance must be a finite number of at least 0, got -1"):
        vicreg.variance = -1.0
    assert vicreg.variance == 1.0


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_weights_that_are_not_finite_or_below_0_are_refused(weight: float) -> None:
    q, k = two_views(4, 3)
    for call in (
        lambda: losses.vicreg(q, k, weight),
        lambda: losses.vicreg(q, k, covariance=weight),
        lambda: losses.barlow_twins(q, k, weight),
        lambda: losses.VICRegLoss(variance=weight),
        lambda: losses.BarlowTwinsLoss(weight),
    ):
        with pytest.raises(ValueError, match="must be a finite number of at least 0"):
            call()


@NAMES
def test_what_is_not_two_equal_matrices_is_refused(name: str) -> None:
    q, k = two_views(4, 3)
    for first, second, said in (
        (q, k[:3], "must have the same shape"),
        (q[0], k[0], "must be a floating-point"),
        (q.detach().long(), k, "must be a floating-point"),
        (q[:0], k[:0], "holds no anchors"),
    ):
        with pytest.raises(ValueError, match=said):
            LOSSES[name](first, second)
