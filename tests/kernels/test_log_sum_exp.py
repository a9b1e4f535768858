"""The fused kernels, interpreted, against whole matrices in float64: arithmetic, masks, and how work is divided."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import brute_force
import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed")
if torch.cuda.is_available():
    pytest.skip("a GPU computes these kernels itself: dualtemp doctor --gpu", allow_module_level=True)
from dualtemp import losses
from dualtemp.kernels import choice
from dualtemp.kernels import log_sum_exp as kernel
from dualtemp.losses import similarity

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy, of masked elements
TAU = st.one_of(st.just(0.01), st.floats(0.01, 0.05), st.floats(0.05, 10))
FAST = (Phase.explicit, Phase.generate)  # an interpreted example takes a third of a second: none are shrunk
SMALL = kernel.Blocks(16, 16, 16, 4)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks so small that few anchors fill several."""
    monkeypatch.setenv("DUALTEMP_TRITON", "1")
    monkeypatch.setattr(kernel, "REDUCE", SMALL)
    monkeypatch.setattr(kernel, "WEIGH", SMALL)
    assert choice.available(torch.device("cpu"))
    before = kernel._multiprocessors
    yield
    kernel._multiprocessors = before


def divide_keys(multiprocessors: int) -> None:
    kernel._multiprocessors = lambda _: multiprocessors  # pyright: ignore


def reference(
    a: Tensor, b: Tensor, tau: tuple[float, float], own: int | None, both: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `similarity.log_sum_exp` gives, from whole matrices."""
    s = a @ b.T
    mask = torch.zeros(s.shape, dtype=torch.bool)
    positive = s.new_empty(0)
    if own is not None:
        mask = torch.arange(len(b))[None, :] == torch.arange(len(a))[:, None] + own
        positive = s[mask]
    s = s.masked_fill(mask, -math.inf)
    alpha, beta = ([torch.logsumexp(s / t, 1 - side) for side in range(1 + both)] for t in tau)
    vector = torch.softmax(s / tau[0], 1) @ b
    return torch.stack(alpha), torch.stack(beta), positive, vector


def cases(most: int) -> dict[str, Any]:
    """Up to `most` anchors and dimensions."""
    return {
        "seed": st.integers(0, 2**31),
        "N": st.integers(2, most),
        "D": st.integers(1, most),
        "beyond": st.one_of(st.none(), st.tuples(st.integers(0, most), st.integers(0, most))),
        "taus": st.tuples(TAU, TAU),
        "both": st.booleans(),
        "symmetric": st.booleans(),
        "keys_learn": st.booleans(),
        "multiprocessors": st.sampled_from([1, 2, 7]),
    }


def check(seed, N, D, beyond, taus, both, symmetric, keys_learn, multiprocessors) -> None:
    """`beyond`: keys before and after the anchors' own ones; None: anchors have no own keys."""
    divide_keys(multiprocessors)
    g = torch.Generator().manual_seed(seed)
    own = None if beyond is None else 0 if both or symmetric else beyond[0]
    K = N if both or symmetric else N + sum(beyond or (3, 0))
    a = F.normalize(torch.randn(N, D, generator=g), dim=1).requires_grad_()
    b = a if symmetric else F.normalize(torch.randn(K, D, generator=g), dim=1).requires_grad_(keys_learn)
    wants = [a, b] if keys_learn and not symmetric else [a]

    ours = similarity.log_sum_exp(a, b, *taus, own=own, both_directions=both)
    precise = {x: x.detach().double().requires_grad_() for x in {a, b}}
    alpha, beta, positive, vector = reference(precise[a], precise[b], taus, own, both)

    eps = torch.finfo(torch.float32).eps
    close: dict[str, Any] = {"rtol": 16 * eps, "atol": 32 * eps * (1 + 1 / min(taus))}
    torch.testing.assert_close(ours.alpha.double(), alpha, **close)
    torch.testing.assert_close(ours.beta.double(), beta, **close)
    torch.testing.assert_close(ours.own.double(), positive, rtol=0, atol=16 * eps)
    if ours.vector.numel():
        torch.testing.assert_close(ours.vector.double(), vector, rtol=0, atol=close["atol"])

    uneven = torch.linspace(0.5, 2, N)
    total, exact = (ours.alpha * uneven).sum(), (alpha * uneven).sum()
    if own is not None:
        total, exact = total + (ours.own * uneven).sum(), exact + (positive * uneven).sum()
    gradients = torch.autograd.grad(total, wants)
    expected = torch.autograd.grad(exact, [precise[x] for x in wants])
    for found, right in zip(gradients, expected, strict=True):
        scale = right.abs().max().item() + 1 / taus[0]
        assert (found - right).abs().max().item() <= 64 * eps * (1 + 1 / taus[0]) * scale


@given(**cases(20))
@settings(max_examples=15, phases=FAST)
def test_log_sum_exp_and_its_gradient_are_those_of_whole_matrices(**case: Any) -> None:
    check(**case)


@pytest.mark.slow
@given(**cases(40))
@settings(max_examples=200, phases=FAST)
def test_log_sum_exp_and_its_gradient_over_many_draws(**case: Any) -> None:
    check(**case)


Loss = Callable[..., Tensor]
CALLS: dict[str, tuple[Loss, Loss]] = {
    "SimCo": (
        lambda q, k, _: losses.dual_temperature(q, k, 0.1, 1.0, reduction="none"),
        lambda q, k, _: brute_force.dual_temperature(q, k, 0.1, 1.0),
    ),
    "tau_beta inf": (
        lambda q, k, _: losses.dual_temperature(q, k, 0.1, math.inf, reduction="none"),
        lambda q, k, _: brute_force.dual_temperature(q, k, 0.1, math.inf),
    ),
    "both views": (
        lambda q, k, _: losses.dual_temperature(q, k, 0.02, 0.5, both_views=True, reduction="none"),
        lambda q, k, _: brute_force.dual_temperature(q, k, 0.02, 0.5, both_views=True),
    ),
    "nt_xent": (
        lambda q, k, _: losses.nt_xent(q, k, 0.1, reduction="none"),
        lambda q, k, _: brute_force.nt_xent(q, k, 0.1),
    ),
    "info_nce": (
        lambda q, k, n: losses.info_nce(q, k, n, 0.1, reduction="none"),
        lambda q, k, n: brute_force.info_nce(q, k, n, 0.1),
    ),
    "decomposed": (
        lambda q, k, n: losses.decomposed(q, k, n, n[:9], 0.1, 1.0, reduction="none"),
        lambda q, k, n: brute_force.decomposed(q, k, n, n[:9], 0.1, 1.0),
    ),
    "equal_anchors": (
        lambda q, k, n: losses.equal_anchors(q, k, n, 0.1, reduction="none"),
        lambda q, k, n: brute_force.equal_anchors(q, k, n, 0.1),
    ),
}


@pytest.mark.parametrize(
    ("name", "detached"), [*((name, False) for name in CALLS), ("info_nce", True), ("decomposed", True)]
)
def test_losses_on_the_kernels_are_those_of_the_brute_force(name: str, detached: bool) -> None:
    divide_keys(3)
    g = torch.Generator().manual_seed(1)
    q, k, keys = (torch.randn(n, 12, generator=g) for n in (18, 18, 34))
    leaves = [x.requires_grad_(not detached or x is q) for x in (q, k, keys)]
    ours, brute = CALLS[name]
    value, expected = ours(*leaves), brute(*(precise := [x.detach().double().requires_grad_() for x in leaves]))
    torch.testing.assert_close(value.double(), expected, rtol=2e-5, atol=2e-5)
    wants = [i for i, x in enumerate(leaves) if x.requires_grad]
    found = torch.autograd.grad(value.sum(), [leaves[i] for i in wants], materialize_grads=True)
    right = torch.autograd.grad(expected.sum(), [precise[i] for i in wants], materialize_grads=True)
    for x, y in zip(found, right, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("tau_beta", [1e30, 1e38, 1e46, 1e300])
def test_a_tau_beta_beyond_float32_is_as_good_as_infinite(tau_beta: float) -> None:
    g = torch.Generator().manual_seed(1)
    q, k, keys = (torch.randn(n, 12, generator=g, requires_grad=True) for n in (18, 18, 34))
    for ours, brute in (
        (
            losses.dual_temperature(q, k, 0.1, tau_beta, reduction="none"),
            brute_force.dual_temperature(q, k, 0.1, math.inf),
        ),
        (
            losses.decomposed(q, k, keys, keys, 0.1, tau_beta, reduction="none"),
            brute_force.decomposed(q, k, keys, keys, 0.1, math.inf),
        ),
    ):
        torch.testing.assert_close(ours.double(), brute, rtol=2e-5, atol=2e-5)
        found, right = (torch.autograd.grad(loss.sum(), q) for loss in (ours, brute))
        torch.testing.assert_close(found, right, rtol=1e-4, atol=3e-5)


def test_a_temperature_on_the_device_gives_the_same_as_its_number() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = (F.normalize(torch.randn(n, 20, generator=g), dim=1) for n in (18, 33))
    by_number = kernel.reduce(a, b, 0.125, 0.5, own=2)
    by_tensor = kernel.reduce(a, b, torch.tensor(0.125), 0.5, own=2)
    assert all(torch.equal(x, y) for x, y in zip(by_number, by_tensor, strict=True))
    rows = kernel.Anchors(by_number[0], torch.ones(18))
    assert torch.equal(kernel.weigh(a, b, 0.125, rows=rows), kernel.weigh(a, b, torch.tensor(0.125), rows=rows))


def test_an_anchor_without_negatives_has_minus_infinity_and_moves_nothing() -> None:
    a = F.normalize(torch.randn(1, 5, generator=torch.Generator().manual_seed(0)), dim=1)
    lse, second = kernel.reduce(a, a, 0.1, 1.0, own=0)
    assert lse.item() == second.item() == -math.inf
    anchors = kernel.Anchors(lse, torch.ones(1))
    assert torch.equal(kernel.weigh(a, a, 0.1, own=0, rows=anchors, columns=anchors), torch.zeros(1, 5))


def test_rows_that_lie_apart_are_read_where_they_are() -> None:
    both = F.normalize(torch.randn(20, 12, generator=torch.Generator().manual_seed(0)), dim=1)
    left, right = both.chunk(2, dim=1)  # as halves of a gathered matrix
    expected = torch.logsumexp(left.double() @ right.double().T / 0.1, 1)
    torch.testing.assert_close(kernel.reduce(left, right, 0.1)[0].double(), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        kernel.reduce(left.T.contiguous().T, right, 0.1)[0].double(), expected, rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("D", [24, pytest.param(300, marks=pytest.mark.slow)])
def test_blocks_as_a_gpu_takes_them(D: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert kernel.REDUCE.rows > SMALL.rows
    a, b = F.normalize(torch.randn(2, 70, D, generator=torch.Generator().manual_seed(0)), dim=2)
    lse, _ = kernel.reduce(a, b, 0.1, own=0)
    s = (a.double() @ b.double().T / 0.1).fill_diagonal_(-math.inf)
    torch.testing.assert_close(lse.double(), torch.logsumexp(s, 1), rtol=0, atol=1e-5)
    weighed = kernel.weigh(a, b, 0.1, own=0, rows=kernel.Anchors(lse, torch.ones(70)))
    torch.testing.assert_close(weighed.double(), torch.softmax(s, 1) @ b.double(), rtol=0, atol=1e-5)


def test_double_precision_and_wide_embeddings_are_left_to_plain_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "reduce", None)  # whoever asks the kernels falls over
    for shape, dtype in (((6, 8), torch.float64), ((6, choice.WIDEST + 1), torch.float32)):
        q, k = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
        assert losses.dual_temperature(q, k).isfinite()
    with pytest.raises(TypeError):
        losses.dual_temperature(q[:, : choice.WIDEST], k[:, : choice.WIDEST])


@pytest.mark.parametrize("name", ["SimCo", "info_nce"])
def test_a_compiled_loss_on_the_kernels_keeps_no_tiles_and_is_that_of_the_brute_force(name: str) -> None:
    g = torch.Generator().manual_seed(1)
    given = [torch.randn(n, 12, generator=g).requires_grad_() for n in (18, 18, 34)]
    ours, brute = CALLS[name]
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    precise = [x.detach().double().requires_grad_() for x in given]
    value, expected = compiled(*given), brute(*precise)
    torch.testing.assert_close(value.double(), expected, rtol=2e-5, atol=2e-5)
    found = torch.autograd.grad(value.sum(), given, materialize_grads=True)
    right = torch.autograd.grad(expected.sum(), precise, materialize_grads=True)
    for x, y in zip(found, right, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=1e-4, atol=3e-5)
