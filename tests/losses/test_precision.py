"""Half precision, autocast, fast-but-rough products, double backward."""

from collections.abc import Callable
from typing import Any

import brute_force
import pytest
import torch
from torch import Tensor

from dualtemp import losses
from dualtemp.bf16_on_cpu import bf16_on_cpu
from dualtemp.losses import hardness, similarity
from dualtemp.losses.similarity_distillation import similarity_distillation
from dualtemp.losses.similarity_drift import similarity_drift

Loss = Callable[..., Tensor]
CALLS: dict[str, Loss] = {
    "info_nce": lambda q, k, n, tau: losses.info_nce(q, k, n, tau),
    "nt_xent": lambda q, k, n, tau: losses.nt_xent(q, k, tau),
    "dual_temperature": lambda q, k, n, tau: losses.dual_temperature(q, k, tau, 1.0),
    "decomposed": lambda q, k, n, tau: losses.decomposed(q, k, n, n, tau, 1.0),
    "equal_anchors": lambda q, k, n, tau: losses.equal_anchors(q, k, n, tau),
}
BRUTE: dict[str, Loss] = {
    "info_nce": lambda q, k, n, tau: brute_force.info_nce(q, k, n, tau),
    "nt_xent": lambda q, k, n, tau: brute_force.nt_xent(q, k, tau),
    "dual_temperature": lambda q, k, n, tau: brute_force.dual_temperature(q, k, tau, 1.0),
    "decomposed": lambda q, k, n, tau: brute_force.decomposed(q, k, n, n, tau, 1.0),
    "equal_anchors": lambda q, k, n, tau: brute_force.equal_anchors(q, k, n, tau),
}


def embeddings(dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(24, 16, generator=g)
    k = q + 0.3 * torch.randn(24, 16, generator=g)  # positives near cosine 1, as after training
    return [x.to(dtype).requires_grad_() for x in (q, k, torch.randn(50, 16, generator=g))]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("tau", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_cost_no_more_than_their_own_rounding(name, tau, dtype) -> None:
    leaves = embeddings(dtype)
    precise = [x.detach().double().requires_grad_() for x in leaves]
    loss, expected = CALLS[name](*leaves, tau), BRUTE[name](*precise, tau).mean()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5 / tau**0.5, atol=1e-5)
    loss.backward()
    expected.backward()
    for x, reference in zip(leaves, precise, strict=True):
        if x.grad is None or reference.grad is None:
            assert x.grad is reference.grad  # nt_xent has no dictionary
            continue
        assert x.grad.dtype == dtype
        smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        atol = max(1e-3 * reference.grad.abs().max().item(), smallest)
        torch.testing.assert_close(x.grad.double(), reference.grad, rtol=2 * torch.finfo(dtype).eps, atol=atol)


@pytest.mark.parametrize("name", CALLS)
def test_autocast_changes_nothing_forward_or_backward(name) -> None:
    leaves = embeddings(torch.float32)
    expected = CALLS[name](*leaves, 0.01)
    gradients = torch.autograd.grad(expected, leaves, allow_unused=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = CALLS[name](*leaves, 0.01)
        again = torch.autograd.grad(loss, leaves, allow_unused=True)
    assert torch.equal(loss, expected)
    for a, b in zip(gradients, again, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


@pytest.mark.skipif(bf16_on_cpu().outcome != "works", reason=bf16_on_cpu().reason)
def test_autocast_does_not_round_similarities() -> None:
    leaves = [x.detach() for x in embeddings(torch.float32)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, ours = leaves[0] @ leaves[2].T, hardness.similarities(*leaves).negatives
        weight = losses.in_batch_weight(leaves[0], leaves[1])
    assert rounded.dtype == torch.bfloat16
    assert torch.equal(ours, hardness.similarities(*leaves).negatives)
    assert torch.equal(weight, losses.in_batch_weight(leaves[0], leaves[1]))


def test_products_are_in_true_float32_whatever_the_switches_say_and_the_switches_are_put_back() -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with similarity.true_precision(torch.device("cpu")):
            inside = torch.backends.mkldnn.matmul.fp32_precision  # pyright: ignore
        with similarity.true_precision(torch.device("cuda")):
            inside_cuda = torch.backends.cuda.matmul.fp32_precision
        assert torch.get_float32_matmul_precision() == "medium"
        with pytest.raises(KeyError), similarity.true_precision(torch.device("cpu")):
            raise KeyError
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert (inside, inside_cuda) == ("ieee", "ieee")


def test_a_switch_that_follows_a_wider_one_still_follows_it_after_a_loss() -> None:
    q, k, _ = embeddings(torch.float32)
    switches: list[tuple[Any, Any]] = [
        (torch.backends.mkldnn, torch.backends.mkldnn.matmul),  # pyright: ignore
        (torch.backends, torch.backends.cuda.matmul),
    ]
    for wider, switch in switches:
        try:
            switch.fp32_precision = "none"
            wider.fp32_precision = "tf32"
            losses.dual_temperature(q, k)
            with similarity.true_precision(torch.device("cuda")):
                pass
            assert switch.fp32_precision == "tf32"
            wider.fp32_precision = "ieee"
            assert switch.fp32_precision == "ieee"
        finally:
            wider.fp32_precision = switch.fp32_precision = "none"


@pytest.mark.parametrize("name", CALLS)
def test_a_second_derivative_is_refused(name) -> None:
    leaves = embeddings(torch.float64)
    loss = CALLS[name](*leaves, 0.1)
    gradients = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
    for gradient in gradients:
        if gradient is not None:
            with pytest.raises(RuntimeError, match="no second derivative"):
                gradient.sum().backward(retain_graph=True)
            with pytest.raises(RuntimeError, match="no second derivative"):
                torch.autograd.grad(gradient.sum(), leaves, retain_graph=True, allow_unused=True)


@pytest.mark.parametrize(
    "loss",
    [
        lambda q: losses.dual_temperature(q, q.flip(0)),
        lambda q: losses.cross_entropy(q, torch.arange(4), 1.0, 0.5),
        lambda q: similarity_distillation(q, q, torch.eye(4)),
        lambda q: similarity_drift(q, torch.eye(4)),
    ],
)
def test_a_hessian_is_refused_not_0(loss) -> None:
    q = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.functional.hessian(loss, q)


def test_without_gradient_nothing_is_kept_and_the_value_is_the_same() -> None:
    q, k, _ = embeddings(torch.float32)
    with torch.no_grad():
        value = losses.dual_temperature(q, k)
    assert not value.requires_grad
    torch.testing.assert_close(value, losses.dual_temperature(q, k))
