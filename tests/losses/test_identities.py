"""What the losses are to each other: identities of gradients, and of values where they hold."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dualtemp import losses

Loss = Callable[..., Tensor]


def embeddings(*shapes: int, D: int = 6, seed: int = 0) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(n, D, generator=g, dtype=torch.float64, requires_grad=True) for n in shapes]


def same_gradients(a: Tensor, b: Tensor, leaves: list[Tensor], factor: float = 1.0) -> None:
    for x, y in zip(torch.autograd.grad(a, leaves), torch.autograd.grad(b, leaves), strict=True):
        torch.testing.assert_close(x, factor * y, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("tau", [0.05, 0.1, 1.0])
def test_dual_temperature_with_equal_temperatures_is_in_batch_info_nce(tau: float) -> None:
    q, k = embeddings(9, 9)
    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T / tau
    target = torch.arange(9)
    one = losses.dual_temperature(q, k, tau, tau, both_directions=False)
    torch.testing.assert_close(one, F.cross_entropy(logits, target))
    same_gradients(one, F.cross_entropy(logits, target), [q, k])

    both = losses.dual_temperature(q, k, tau, tau)
    logits = F.normalize(q, dim=1) @ F.normalize(k, dim=1).T / tau
    same_gradients(both, (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2, [q, k])


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_dual_temperature_with_negatives_of_both_views_and_equal_temperatures_is_nt_xent(tau: float) -> None:
    q, k = embeddings(9, 9)
    dual, one = losses.dual_temperature(q, k, tau, tau, both_views=True), losses.nt_xent(q, k, tau)
    torch.testing.assert_close(dual, one)
    same_gradients(dual, one, [q, k])


def test_an_infinite_tau_beta_gives_the_gradient_of_equal_anchors_times_k_over_k_plus_1() -> None:
    q, k, keys = embeddings(9, 9, 40)
    decomposed = losses.decomposed(q, k, keys, keys, 0.1, math.inf)
    same_gradients(decomposed, losses.equal_anchors(q, k, keys, 0.1), [q, k, keys], 40 / 41)

    in_batch = losses.dual_temperature(q, k, 0.1, math.inf, both_directions=False)
    others = [torch.cat((k[:i], k[i + 1 :])) for i in range(9)]
    equal = torch.stack([losses.equal_anchors(q[i : i + 1], k[i : i + 1], others[i], 0.1) for i in range(9)]).mean()
    same_gradients(in_batch, equal, [q, k], 8 / 9)


WITH_TAU_BETA: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "one tile": lambda q, k, beta: losses.dual_temperature(q, k, 0.1, beta),
    "both views": lambda q, k, beta: losses.dual_temperature(q, k, 0.1, beta, both_views=True),
    "tiles": lambda q, k, beta: losses.dual_temperature(q.repeat(300, 1), k.repeat(300, 1), 0.1, beta),
    "dictionary": lambda q, k, beta: losses.decomposed(q, k, k.detach(), k.detach()[:3], 0.1, beta),
    "labels": lambda q, k, beta: losses.supervised_contrastive(q, k, torch.arange(len(q)) // 2, 0.1, beta),
    "classes": lambda q, k, beta: losses.cross_entropy(q, torch.arange(len(q)) % q.shape[1], 1.0, beta),
}


@pytest.mark.parametrize("tau_beta", [1e39, 1e44, 1e45, 1e46, 1e308])
@pytest.mark.parametrize("name", WITH_TAU_BETA)
def test_a_tau_beta_beyond_float32_is_as_good_as_infinite(name: str, tau_beta: float) -> None:
    q, k = (x.detach().float().requires_grad_() for x in embeddings(9, 9))
    huge, infinite = (WITH_TAU_BETA[name](q, k, beta) for beta in (tau_beta, math.inf))
    torch.testing.assert_close(huge, infinite, rtol=1e-6, atol=0)
    for x, y in zip(*(torch.autograd.grad(loss, [q, k], allow_unused=True) for loss in (huge, infinite)), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-9)


def test_decomposed_with_one_dictionary_and_one_temperature_has_the_gradient_of_info_nce() -> None:
    q, k, keys = embeddings(9, 9, 40)
    same_gradients(losses.decomposed(q, k, keys, keys, 0.1), losses.info_nce(q, k, keys, 0.1), [q, k, keys])
    copy = keys.detach().clone()  # two dictionaries that happen to be equal
    keys = keys.detach()
    same_gradients(losses.decomposed(q, k, keys, copy, 0.1), losses.info_nce(q, k, keys, 0.1), [q, k])


def test_decomposed_descends() -> None:
    """The paper prints eq:infonce_nss_equiva with the sign that ascends: a step must bring the positive nearer."""
    q, k, keys = embeddings(9, 9, 40)
    (gradient,) = torch.autograd.grad(losses.decomposed(q, k, keys, keys), q)
    before, after = (F.cosine_similarity(x, k).mean() for x in (q, q - 0.01 * gradient))
    assert after > before


def test_scalar_keys_receive_no_gradient() -> None:
    q, k, vector_keys, scalar_keys = embeddings(5, 5, 9, 9)
    losses.decomposed(q, k, vector_keys, scalar_keys).backward()
    assert vector_keys.grad is not None
    assert scalar_keys.grad is None


def test_a_high_vector_temperature_makes_equal_anchors_the_simple_loss() -> None:
    q, k, keys = embeddings(9, 9, 40)
    tau = 1e7
    same = torch.autograd.grad(losses.equal_anchors(q, k, keys, tau) * tau, [q, k, keys])
    for x, y in zip(same, torch.autograd.grad(losses.simple(q, k, keys), [q, k, keys]), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)


def test_the_defaults_are_those_of_the_table() -> None:
    q, k, keys = embeddings(9, 9, 40)
    assert losses.dual_temperature(q, k) == losses.dual_temperature(q, k, 0.1, 1.0, both_directions=True)
    assert losses.info_nce(q, k, keys) == losses.info_nce(q, k, keys, 0.1)
    assert losses.nt_xent(q, k) == losses.nt_xent(q, k, 0.1)
    assert losses.decomposed(q, k, keys, keys[:5]) == losses.decomposed(q, k, keys, keys[:5], 0.1, 0.1)
    assert losses.equal_anchors(q, k, keys) == losses.equal_anchors(q, k, keys, 0.1)
    assert torch.equal(losses.in_batch_weight(q, k), losses.in_batch_weight(q, k, 0.1))
    logits, target = keys, torch.arange(40) % 6
    torch.testing.assert_close(losses.cross_entropy(logits, target), F.cross_entropy(logits, target))


def test_reduction_none_gives_a_value_per_pair_whose_mean_is_the_loss() -> None:
    q, k, keys = embeddings(9, 9, 40)
    cases: list[tuple[Loss, tuple[Tensor, ...]]] = [
        (losses.info_nce, (q, k, keys)),
        (losses.nt_xent, (q, k)),
        (losses.dual_temperature, (q, k)),
        (losses.decomposed, (q, k, keys, keys)),
        (losses.equal_anchors, (q, k, keys)),
        (losses.simple, (q, k, keys)),
        (losses.negative_cosine, (q, k)),
        (losses.cross_entropy, (q, torch.arange(9) % 6)),
    ]
    for loss, arguments in cases:
        each = loss(*arguments, reduction="none")
        assert each.shape == (9,)
        torch.testing.assert_close(each.mean(), loss(*arguments))


def test_unit_vectors_need_not_be_normalised_again() -> None:
    q, k, keys = embeddings(9, 9, 40)
    cases: list[tuple[Loss, int]] = [
        (losses.info_nce, 3),
        (losses.dual_temperature, 2),
        (losses.nt_xent, 2),
        (losses.simple, 3),
    ]
    for loss, n in cases:
        unit = [F.normalize(x, dim=1) for x in (q, k, keys)]
        same_gradients(loss(*unit[:n], normalize=False), loss(*[q, k, keys][:n]), [q, k])


def test_stats_hold_what_there_is_to_log_of_the_step() -> None:
    q, k, keys = embeddings(9, 9, 40)
    stats: dict[str, Tensor] = {}
    losses.dual_temperature(q, k, 0.1, 0.7, stats=stats)
    assert all(not x.requires_grad and x.shape == (2, 9) for x in stats.values())
    torch.testing.assert_close(stats["W"][0], losses.in_batch_weight(q, k, 0.7))
    torch.testing.assert_close(stats["W"][1], losses.in_batch_weight(k, q, 0.7))
    torch.testing.assert_close(stats["p_pos"][0], 1 - losses.in_batch_weight(q, k, 0.1))
    torch.testing.assert_close(stats["r_pos"], stats["W"] / stats["W"].sum(1, keepdim=True))

    cases: list[tuple[Loss, tuple[Tensor, ...]]] = [
        (losses.info_nce, (q, k, keys)),
        (losses.decomposed, (q, k, keys, keys)),
        (losses.equal_anchors, (q, k, keys)),
        (losses.cross_entropy, (q, torch.arange(9) % 6)),
    ]
    for loss, arguments in cases:
        stats = {}
        loss(*arguments, stats=stats)
        assert set(stats) == {"W", "p_pos", "r_pos"}
        assert all(x.shape == (9,) and not x.requires_grad for x in stats.values())
        torch.testing.assert_close(stats["r_pos"], stats["W"] / stats["W"].sum())
        if loss is losses.info_nce:
            torch.testing.assert_close(stats["p_pos"], torch.exp(-losses.info_nce(q, k, keys, reduction="none")))
        if loss is losses.equal_anchors:
            assert (stats["W"] == 1).all()
