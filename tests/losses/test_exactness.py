"""Every loss against the brute force, value and gradient, over drawn shapes, temperatures, extremes and tilings."""

import math
from collections.abc import Callable
from typing import Any

import brute_force
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dualtemp import losses
from dualtemp.losses import product_plan

TAU_ALPHA = st.one_of(st.just(0.01), st.floats(0.01, 0.05), st.floats(0.05, 10))
TAU_BETA = st.one_of(TAU_ALPHA, st.just(math.inf))
DTYPE = st.sampled_from([torch.float64, torch.float32])
# How the product is walked over: whole and kept, small tiles kept, small tiles made again.
TILING = st.sampled_from([(1 << 18, 1 << 24), (24, 1 << 24), (24, 0)])
EXTREME = st.sampled_from(["drawn", "positives at cosine 1", "negatives all the same", "all the same", "opposite"])
POSITIVE_LENGTHS = (0.01, 1.0, 100.0)  # embeddings need not be normalised


@pytest.fixture(autouse=True)
def _restore_tiling():
    before = product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS
    yield
    product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS = before
    product_plan.plan_of_pairs.cache_clear()


def tile(tiling: tuple[int, int]) -> None:
    product_plan.plan_of_pairs.cache_clear()
    product_plan.TILE_ELEMENTS["cpu"], product_plan.KEPT_ELEMENTS = tiling


def drawn(seed: int, N: int, K: int, D: int, extreme: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Two views (N, D) and a dictionary (K, D), as leaves."""
    g = torch.Generator().manual_seed(seed)
    q, k, keys = (torch.randn(n, D, generator=g, dtype=torch.float64) for n in (N, N, K))
    if extreme == "positives at cosine 1":
        k = 3 * q
    elif extreme == "negatives all the same":
        k, keys = k[:1].expand(N, D).clone(), keys[:1].expand(K, D).clone()
    elif extreme == "all the same":
        q, k, keys = (q[:1].expand(n, D).clone() for n in (N, N, K))
    elif extreme == "opposite":
        k = -q
    lengths = [POSITIVE_LENGTHS[(seed + i) % 3] for i in range(3)]
    q, k, keys = (x * length for x, length in zip((q, k, keys), lengths, strict=True))
    return tuple(x.to(dtype).requires_grad_() for x in (q, k, keys))  # pyright: ignore


def compare(ours: Callable[..., Tensor], brute: Callable[..., Tensor], leaves: tuple[Tensor, ...], tau: float) -> None:
    """Value per anchor, and the gradient of a sum with uneven weights, of which the mean is one case."""
    eps = torch.finfo(leaves[0].dtype).eps
    precise = [x.detach().double().requires_grad_() for x in leaves]
    value, expected = ours(*leaves), brute(*precise)
    assert value.dtype == leaves[0].dtype
    # A similarity is off by some eps, its exponential by 1 / tau times that.
    torch.testing.assert_close(value.double(), expected, rtol=16 * eps / tau + 16 * eps, atol=64 * eps * (1 + 1 / tau))

    uneven = torch.linspace(0.5, 2, len(value), dtype=torch.float64)
    gradients = torch.autograd.grad((value * uneven.to(value)).sum(), leaves, materialize_grads=True)
    references = torch.autograd.grad((expected * uneven).sum(), precise, materialize_grads=True)
    for x, gradient, reference in zip(leaves, gradients, references, strict=True):
        assert gradient.isfinite().all()
        # With respect to directions, that is, whatever the embeddings' lengths.
        length = x.detach().double().norm(dim=-1, keepdim=True)
        worst = ((gradient.double() - reference) * length).abs().max().item()
        scale = max(1.0, (reference * length).abs().max().item())
        assert worst <= 64 * eps * (1 + 1 / tau) * (scale + 1 / tau), f"off by {worst} at scale {scale}"


@given(
    seed=st.integers(0, 2**31),
    N=st.integers(2, 14),
    D=st.integers(1, 12),
    tau_alpha=TAU_ALPHA,
    tau_beta=TAU_BETA,
    both_directions=st.booleans(),
    both_views=st.booleans(),
    dtype=DTYPE,
    tiling=TILING,
    extreme=EXTREME,
)
def test_dual_temperature(seed, N, D, tau_alpha, tau_beta, both_directions, both_views, dtype, tiling, extreme) -> None:
    tile(tiling)
    q, k, _ = drawn(seed, N, 1, D, extreme, dtype)
    compare(
        lambda q, k: losses.dual_temperature(
            q, k, tau_alpha, tau_beta, both_directions=both_directions, both_views=both_views, reduction="none"
        ),
        lambda q, k: brute_force.dual_temperature(q, k, tau_alpha, tau_beta, both_directions, both_views),
        (q, k),
        min(tau_alpha, tau_beta),
    )


@given(
    seed=st.integers(0, 2**31),
    N=st.integers(2, 14),
    D=st.integers(1, 12),
    tau_alpha=TAU_ALPHA,
    tau_beta=TAU_BETA,
    dtype=DTYPE,
    tiling=TILING,
    extreme=EXTREME,
)
def test_dual_temperature_with_detached_keys(seed, N, D, tau_alpha, tau_beta, dtype, tiling, extreme) -> None:
    tile(tiling)
    q, k, _ = drawn(seed, N, 1, D, extreme, dtype)
    compare(
        lambda q: losses.dual_temperature(q, k.detach(), tau_alpha, tau_beta, both_directions=False, reduction="none"),
        lambda q: brute_force.dual_temperature(q, k.detach(), tau_alpha, tau_beta, False),
        (q,),
        min(tau_alpha, tau_beta),
    )


@given(
    seed=st.integers(0, 2**31),
    N=st.integers(2, 14),
    D=st.integers(1, 12),
    tau=TAU_ALPHA,
    dtype=DTYPE,
    tiling=TILING,
    extreme=EXTREME,
)
def test_nt_xent(seed, N, D, tau, dtype, tiling, extreme) -> None:
    tile(tiling)
    q, k, _ = drawn(seed, N, 1, D, extreme, dtype)
    compare(
        lambda q, k: losses.nt_xent(q, k, tau, reduction="none"),
        lambda q, k: brute_force.nt_xent(q, k, tau),
        (q, k),
        tau,
    )


@pytest.mark.parametrize("keys_learn", [False, True])
@pytest.mark.parametrize("name", ["info_nce", "equal_anchors", "simple"])
@given(
    seed=st.integers(0, 2**31),
    N=st.integers(1, 9),
    K=st.integers(1, 30),
    D=st.integers(1, 12),
    tau=TAU_ALPHA,
    dtype=DTYPE,
    tiling=TILING,
    extreme=EXTREME,
)
def test_losses_with_one_dictionary(name, keys_learn, seed, N, K, D, tau, dtype, tiling, extreme) -> None:
    tile(tiling)
    q, k, keys = drawn(seed, N, K, D, extreme, dtype)
    temperature = [] if name == "simple" else [tau]
    ours, brute = getattr(losses, name), getattr(brute_force, name)
    fixed = () if keys_learn else (k.detach(), keys.detach())
    compare(
        lambda *x: ours(*x, *fixed, *temperature, reduction="none"),
        lambda *x: brute(*x, *(y.double() for y in fixed), *temperature),
        (q, k, keys) if keys_learn else (q,),
        1.0 if name == "simple" else tau,
    )


@pytest.mark.parametrize("keys_learn", [False, True])
@given(
    seed=st.integers(0, 2**31),
    N=st.integers(1, 9),
    K=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    D=st.integers(1, 12),
    tau_alpha=TAU_ALPHA,
    tau_beta=TAU_BETA,
    dtype=DTYPE,
    tiling=TILING,
    extreme=EXTREME,
)
def test_decomposed(keys_learn, seed, N, K, D, tau_alpha, tau_beta, dtype, tiling, extreme) -> None:
    tile(tiling)
    q, k, keys = drawn(seed, N, K[0], D, extreme, dtype)
    scalar_keys = drawn(seed + 1, 1, K[1], D, extreme, dtype)[2].detach()
    if keys_learn:
        compare(
            lambda q, k, v: losses.decomposed(q, k, v, scalar_keys, tau_alpha, tau_beta, reduction="none"),
            lambda q, k, v: brute_force.decomposed(q, k, v, scalar_keys, tau_alpha, tau_beta),
            (q, k, keys),
            min(tau_alpha, tau_beta),
        )
    else:
        k, keys = k.detach(), keys.detach()
        compare(
            lambda q: losses.decomposed(q, k, keys, scalar_keys, tau_alpha, tau_beta, reduction="none"),
            lambda q: brute_force.decomposed(q, k, keys, scalar_keys, tau_alpha, tau_beta),
            (q,),
            min(tau_alpha, tau_beta),
        )


@given(
    seed=st.integers(0, 2**31),
    N=st.integers(1, 9),
    C=st.integers(2, 12),
    scale=st.floats(0.1, 10),
    tau_alpha=st.floats(0.1, 10),
    tau_beta=st.one_of(st.floats(0.1, 10), st.just(math.inf)),
    dtype=DTYPE,
)
def test_cross_entropy_with_two_temperatures(seed, N, C, scale, tau_alpha, tau_beta, dtype) -> None:
    g = torch.Generator().manual_seed(seed)
    logits = (scale * torch.randn(N, C, generator=g, dtype=torch.float64)).to(dtype).requires_grad_()
    target = torch.randint(C, (N,), generator=g)
    eps = torch.finfo(dtype).eps
    precise = logits.detach().double().requires_grad_()
    value = losses.cross_entropy(logits, target, tau_alpha, tau_beta, reduction="none")
    expected = brute_force.cross_entropy(precise, target, tau_alpha, tau_beta)
    rtol = 64 * eps * (1 + scale / min(tau_alpha, tau_beta))
    torch.testing.assert_close(value.double(), expected, rtol=rtol, atol=rtol)
    ours, reference = torch.autograd.grad(value.sum(), logits)[0], torch.autograd.grad(expected.sum(), precise)[0]
    torch.testing.assert_close(ours.double(), reference, rtol=rtol, atol=rtol / tau_alpha)


@pytest.mark.parametrize("how", [{}, {"tau_beta": math.inf}, {"tau_alpha": 0.5, "tau_beta": 2.0}, {"weight": "equal"}])
def test_a_class_whose_logit_is_minus_infinity_does_not_exist(how: dict) -> None:
    g = torch.Generator().manual_seed(0)
    logits, target = torch.randn(8, 6, generator=g, dtype=torch.float64), torch.randint(6, (8,), generator=g)
    absent = torch.rand(8, 6, generator=g) < 0.5
    absent[0] = True  # no class but the target
    absent[torch.arange(8), target] = False
    masked = logits.masked_fill(absent, -math.inf).requires_grad_()
    value = losses.cross_entropy(masked, target, reduction="none", **how)
    (gradient,) = torch.autograd.grad(value.sum(), masked)
    for row, there in enumerate(~absent):
        left = logits[row : row + 1, there].requires_grad_()
        if there.sum() == 1:
            assert value[row] == 0
            assert not gradient[row].any()
            continue
        alone = losses.cross_entropy(left, there[: target[row]].sum()[None], **how)
        torch.testing.assert_close(value[row], alone)
        torch.testing.assert_close(gradient[row : row + 1, there], torch.autograd.grad(alone, left)[0])
        assert not gradient[row, ~there].any()
    if not how:
        theirs = F.cross_entropy(masked, target, reduction="none")
        torch.testing.assert_close(value, theirs)
        torch.testing.assert_close(gradient, torch.autograd.grad(theirs.sum(), masked)[0])


def test_an_anchor_without_other_classes_has_a_weight_of_0_in_the_statistics() -> None:
    logits = torch.tensor([[1.0, -math.inf, -math.inf], [1.0, 2.0, -math.inf], [0.5, 0.1, 2.0]])
    options: list[dict] = [{}, {"tau_beta": math.inf}, {"weight": "equal"}]
    for how in options:
        stats: dict[str, torch.Tensor] = {}
        losses.cross_entropy(logits, torch.zeros(3, dtype=torch.int64), stats=stats, **how)
        left: dict[str, torch.Tensor] = {}
        losses.cross_entropy(logits[1:], torch.zeros(2, dtype=torch.int64), stats=left, **how)
        for name in ("W", "r_pos"):
            assert stats[name][0] == 0
            torch.testing.assert_close(stats[name][1:], left[name])


def test_an_infinitely_far_target_weighs_as_any_other_at_an_infinite_tau_beta() -> None:
    logits = torch.tensor([[-math.inf, 2.0, 0.5], [0.5, 0.1, 2.0]])
    stats: dict[str, torch.Tensor] = {}
    value = losses.cross_entropy(
        logits, torch.zeros(2, dtype=torch.int64), tau_beta=math.inf, reduction="none", stats=stats
    )
    torch.testing.assert_close(stats["W"], torch.full((2,), 2 / 3))
    assert value[0] == math.inf
    assert value[1].isfinite()


@given(seed=st.integers(0, 2**31), N=st.integers(1, 9), C=st.integers(2, 12), tau=st.floats(0.1, 10))
def test_cross_entropy_with_one_temperature_is_pytorchs(seed, N, C, tau) -> None:
    g = torch.Generator().manual_seed(seed)
    logits = (5 * torch.randn(N, C, generator=g, dtype=torch.float64)).requires_grad_()
    target = torch.randint(C, (N,), generator=g)
    ours, theirs = losses.cross_entropy(logits, target, tau, tau), F.cross_entropy(logits / tau, target)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for a, b in zip(torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@given(seed=st.integers(0, 2**31), N=st.integers(1, 9), D=st.integers(1, 12), dtype=DTYPE)
def test_negative_cosine_is_minus_pytorchs_cosine_times_the_weight(seed, N, D, dtype) -> None:
    p, k, _ = drawn(seed, N, 1, D, "drawn", dtype)
    weight = torch.rand(N, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    cosine = F.cosine_similarity(p.double(), k.double())
    for w, expected in ((None, -cosine), (weight, -cosine * weight.double())):
        value = losses.negative_cosine(p, k.detach(), w, reduction="none")
        torch.testing.assert_close(value.double(), expected, rtol=0, atol=16 * torch.finfo(dtype).eps)
        assert torch.autograd.grad(value.sum(), k, allow_unused=True)[0] is None


@given(seed=st.integers(0, 2**31), N=st.integers(2, 14), tau=TAU_BETA, dtype=DTYPE)
def test_the_weight_of_a_batch_is_that_of_the_equation(seed, N, tau, dtype) -> None:
    p, k, _ = drawn(seed, N, 1, 8, "drawn", dtype)
    expected = brute_force.weight(*brute_force.in_batch(p, k, both_views=False)[0], tau)
    ours = losses.in_batch_weight(p, k, tau)
    assert not ours.requires_grad
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(ours.double(), expected.detach(), rtol=64 * eps * (1 + 1 / tau), atol=1e-37)


def test_functions_without_a_stop_gradient_have_the_gradient_of_their_value() -> None:
    q, k, keys = drawn(3, 5, 7, 4, "drawn", torch.float64)
    target = torch.tensor([0, 3, 1, 2, 2])
    for tiling in ((1 << 18, 1 << 24), (6, 0)):
        tile(tiling)
        assert torch.autograd.gradcheck(lambda q, k, n: losses.info_nce(q, k, n, 0.2), (q, k, keys))
        assert torch.autograd.gradcheck(lambda q, k: losses.nt_xent(q, k, 0.2), (q, k))
        assert torch.autograd.gradcheck(lambda q, k: losses.dual_temperature(q, k, 0.2, 0.2), (q, k))
        assert torch.autograd.gradcheck(losses.simple, (q, k, keys))
        assert torch.autograd.gradcheck(lambda p, k: losses.negative_cosine(p, k), (q, k))
        assert torch.autograd.gradcheck(lambda x: losses.cross_entropy(x, target), (q,))


# Calls with one tensor in several places: "X" and "Y" stand for x and y once more, the temperatures follow.
ALIASED: list[tuple[str, str, dict[str, bool]]] = [
    ("dual_temperature", "xXab", {}),
    ("dual_temperature", "xXab", {"both_directions": False}),
    ("dual_temperature", "xXab", {"both_views": True}),
    ("dual_temperature", "xXab", {"both_directions": False, "both_views": True}),
    ("nt_xent", "xXa", {}),
    *((name, f"{places}a", {}) for name in ("info_nce", "equal_anchors") for places in ("xXz", "xyX", "xyY", "xXX")),
    ("simple", "xXX", {}),
    *(("decomposed", f"{places}ab", {}) for places in ("xyXz", "xyzX", "xyXX", "xXXX", "xXzz")),
]
ONCE_MORE: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "view": lambda x: x.view_as(x),  # a tensor of its own on the same storage, as the next two
    "transposed": lambda x: x.T.T,
    "slice": lambda x: x[:],
}


@pytest.mark.parametrize(("name", "places", "options"), ALIASED)
@given(
    seed=st.integers(0, 2**31),
    N=st.integers(2, 14),
    D=st.integers(2, 12),
    tau_alpha=st.floats(0.05, 2),
    tau_beta=st.one_of(st.floats(0.05, 2), st.just(math.inf)),
    again=st.sampled_from(["itself", *ONCE_MORE]),
    dtype=DTYPE,
    tiling=TILING,
)
@settings(max_examples=12)
def test_a_tensor_in_several_places_receives_the_gradient_of_all(
    name, places, options, seed, N, D, tau_alpha, tau_beta, again, dtype, tiling
) -> None:
    tile(tiling)
    units = (F.normalize(u.detach(), dim=1).requires_grad_() for u in drawn(seed, N, N + 3, D, "drawn", dtype))

    def arguments(x: Tensor, y: Tensor, z: Tensor) -> list[Any]:
        more = ONCE_MORE[again]
        values = {"x": x, "y": y, "z": z, "X": more(x), "Y": more(y), "a": tau_alpha, "b": tau_beta}
        return [values[place] for place in places]

    ours, brute = getattr(losses, name), getattr(brute_force, name)
    with pytest.MonkeyPatch.context() as patched:
        # Normalising would hide what goes along a vector, such as the gradient of x_i . x_i.
        patched.setattr(brute_force, "unit", lambda u: u.double())
        compare(
            lambda *x: ours(*arguments(*x), **options, normalize=False, reduction="none"),
            lambda *x: brute(*arguments(*x), **options),
            tuple(units),
            min(tau_alpha, tau_beta),
        )
