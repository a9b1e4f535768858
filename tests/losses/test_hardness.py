import math

import brute_force
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dualtemp.losses import hardness

TEMPERATURES = st.one_of(st.floats(0.01, 10), st.just(math.inf))


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=st.integers(0, 2**31), N=st.integers(1, 9), K=st.integers(1, 40), tau=TEMPERATURES)
def test_weights_are_those_of_the_equations(seed: int, N: int, K: int, tau: float) -> None:
    q, k_pos, negatives = drawn(seed, N, 6), drawn(seed + 1, N, 6), drawn(seed + 2, K, 6)
    positive, s, mask = brute_force.with_dictionary(q, k_pos, negatives)
    expected = brute_force.weight(positive, s, mask, tau)

    of_similarities = hardness.log_odds(positive, s, tau)
    of_embeddings = hardness.log_odds_of_embeddings(q, k_pos, negatives, tau)
    torch.testing.assert_close(hardness.similarities(q, k_pos, negatives).negatives, s, rtol=0, atol=1e-14)
    for d in (of_similarities, of_embeddings):
        torch.testing.assert_close(hardness.inter_anchor_weight(d), expected, rtol=1e-11, atol=0)
        torch.testing.assert_close(hardness.positive_probability(d), 1 / (1 + brute_force.odds(positive, s, mask, tau)))
        torch.testing.assert_close(hardness.relative_penalty(d), expected / expected.sum(), rtol=1e-11, atol=1e-300)

    p_hat = hardness.intra_anchor_weights(s, tau)
    e = brute_force.exponential(s, tau)
    torch.testing.assert_close(p_hat, e / e.sum(-1, keepdim=True), rtol=1e-11, atol=0)


@given(seed=st.integers(0, 2**31), N=st.integers(2, 12), tau=TEMPERATURES)
def test_without_a_dictionary_the_other_rows_are_the_negatives(seed: int, N: int, tau: float) -> None:
    q, k = drawn(seed, N, 5), drawn(seed + 1, N, 5)
    expected = brute_force.weight(*brute_force.in_batch(q, k, both_views=False)[0], tau)
    for d in (hardness.log_odds(*hardness.similarities(q, k), tau), hardness.log_odds_of_embeddings(q, k, None, tau)):
        torch.testing.assert_close(hardness.inter_anchor_weight(d), expected, rtol=1e-11, atol=0)


def test_relative_penalty_keeps_digits_that_the_weights_themselves_have_lost() -> None:
    d = torch.tensor([-200.0, -201.0])  # float32: sigmoid(-200) is 0
    assert hardness.inter_anchor_weight(d).sum() == 0
    torch.testing.assert_close(hardness.relative_penalty(d), torch.softmax(torch.tensor([0.0, -1.0]), 0))


def test_entropy_runs_from_nothing_to_the_logarithm_of_the_number_of_anchors() -> None:
    assert hardness.entropy(torch.tensor([1.0, 0.0, 0.0])) == 0
    assert hardness.entropy(torch.full((4, 50), 1 / 50)).tolist() == pytest.approx([math.log(50)] * 4)


@given(seed=st.integers(0, 2**31))
def test_entropy_of_the_penalty_rises_with_temperature_and_with_the_dictionary(seed: int) -> None:
    """The claim of fig:entropy, where it is sure: between far temperatures, and far sizes of one dictionary."""
    q = drawn(seed, 64, 16)
    k_pos, keys = q + 0.7 * drawn(seed + 1, 64, 16), drawn(seed + 2, 4096, 16)

    def entropy(tau: float, K: int) -> float:
        d = hardness.log_odds_of_embeddings(q, k_pos, keys[:K], tau)
        return hardness.entropy(hardness.relative_penalty(d)).item()

    assert entropy(0.05, 64) < entropy(0.2, 64) < entropy(1.0, 64) <= entropy(math.inf, 64) + 1e-12
    assert entropy(0.1, 4) < entropy(0.1, 4096)


def test_similarity_of_two_draws_is_their_cosine() -> None:
    r, redrawn = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.6, 0.3, 0.1])
    cosine = (r @ redrawn / (r.norm() * redrawn.norm())).item()
    assert hardness.penalty_similarity(r, redrawn).item() == pytest.approx(cosine)
    assert hardness.penalty_similarity(r, r).item() == pytest.approx(1)
