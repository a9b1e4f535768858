"""Scalar and vector by dictionary size, against the paper's formulas written out in numpy with float64."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dualtemp.analysis.dictionary import compare_dictionary_sizes, components, default_sizes
from dualtemp.analysis.penalty import BATCHES
from dualtemp.analysis.trained_run import open_trained_run


def brute_force(q: np.ndarray, k: np.ndarray, keys: np.ndarray, tau: float) -> tuple[np.ndarray, ...]:
    """W (N,), sum_j p^_ij k_j (N, D) and exp H(p^) (N,)."""
    q, k, keys = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, k, keys))
    e = np.exp(q @ keys.T / tau)
    W = e.sum(1) / (np.exp((q * k).sum(1) / tau) + e.sum(1))
    p = e / e.sum(1, keepdims=True)
    return W, p @ keys, np.exp(-(p * np.log(p)).sum(1))


@pytest.mark.parametrize("method", ["moco", "simco"])
def test_every_number_is_that_of_the_formula(run_of: Callable[[str], Path], method: str) -> None:
    run = open_trained_run(run_of(method))
    found = compare_dictionary_sizes(run, [0.1, 1.0], [4, 64, 1000])
    keys = run.keys.double().numpy()
    assert found["keys"] == len(keys) == {"moco": 96, "simco": 128}[method]
    for tau in (0.1, 1.0):
        assert found["values"][f"{tau:g}"]["1000"] is None
        for size in (4, 64):
            batches = []
            for a in run.anchors(BATCHES):
                q, k = a.q.double().numpy(), a.k_pos.double().numpy()
                W, vector, effective = brute_force(q, k, keys[-size:], tau)
                W_all, vector_all, _ = brute_force(q, k, keys, tau)
                cosine = (
                    (vector * vector_all).sum(1) / np.linalg.norm(vector, axis=1) / np.linalg.norm(vector_all, axis=1)
                )
                batches.append(
                    {
                        "W": W.mean(),
                        "W_spread": W.std(),
                        "scalar_correlation": np.corrcoef(np.log(W), np.log(W_all))[0, 1],
                        "scalar_similarity": W @ W_all / np.linalg.norm(W) / np.linalg.norm(W_all),
                        "vector_similarity": cosine.mean(),
                        "effective_negatives": effective.mean(),
                    }
                )
            expected = {name: np.mean([batch[name] for batch in batches]) for name in batches[0]}
            assert found["values"][f"{tau:g}"][str(size)] == pytest.approx(expected, rel=2e-4, abs=2e-5)


def test_at_an_infinite_tau_all_keys_count_alike(run_of: Callable[[str], Path]) -> None:
    run = open_trained_run(run_of("simco"))
    a, keys = next(iter(run.anchors(1))), run.dictionary(20)
    found = components(a.q, a.k_pos, keys, math.inf)
    torch.testing.assert_close(found.effective, torch.full((32,), 20.0, dtype=torch.float64), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.vector[3], keys.double().mean(0), atol=1e-6, rtol=0)
    row = compare_dictionary_sizes(run, [math.inf], [20])["values"]["inf"]["20"]
    assert row["scalar_correlation"] is None  # W is the same of all anchors
    assert row["W"] == pytest.approx(20 / 21)


def test_sizes_are_powers_of_four_within_what_there_is_and_of_two_where_that_is_little(
    run_of: Callable[[str], Path],
) -> None:
    assert default_sizes(open_trained_run(run_of("simco"))) == [16, 64]
    assert default_sizes(open_trained_run(run_of("simco")), share=2) == [16, 64]
    assert default_sizes(open_trained_run(run_of("moco")), share=2) == [2, 4, 8, 16, 32]
    assert default_sizes(open_trained_run(run_of("moco")), share=8) == [2, 4, 8]
    assert default_sizes(open_trained_run(run_of("moco")), share=96) == [1]
