"""Measurements on a real run, against the paper's formulas written out in numpy with float64."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dualtemp.analysis.penalty import BATCHES, penalty_entropy, redrawn_similarity
from dualtemp.analysis.teaser import three_anchors
from dualtemp.analysis.trained_run import TrainedRun, open_trained_run


@pytest.fixture(scope="module")
def folder(run_of: Callable[[str], Path]) -> Path:
    return run_of("moco")


def weights(q: np.ndarray, k: np.ndarray, keys: np.ndarray, tau: float) -> np.ndarray:
    """sum_j p_j of every anchor, as the paper writes it, in float64."""
    q, k, keys = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, k, keys))
    positive, negatives = np.exp((q * k).sum(1) / tau), np.exp(q @ keys.T / tau)
    return negatives.sum(1) / (positive + negatives.sum(1))


def anchors(run: TrainedRun) -> list[tuple[np.ndarray, ...]]:
    return [tuple(x.double().numpy() for x in (a.q, a.k_pos, a.k_redrawn)) for a in run.anchors(BATCHES)]


def test_the_run_comes_back_with_its_dictionary(folder: Path) -> None:
    run = open_trained_run(folder)
    assert run.keys.shape == (96, 128)  # four batches of 32 came in, and the dictionary holds three
    batches = list(run.anchors(2))
    assert len(batches) == 2
    assert batches[0].q.shape == (32, 128)
    assert not torch.allclose(batches[0].k_pos, batches[0].k_redrawn)


def test_entropy_is_that_of_the_formula(folder: Path) -> None:
    found = penalty_entropy(open_trained_run(folder), [0.1, 1.0], [4, 96, 97])
    assert found["0.1"]["97"] is None
    run = open_trained_run(folder)
    keys = run.keys.double().numpy()
    for tau in (0.1, 1.0):
        expected = []
        for q, k, _ in anchors(open_trained_run(folder)):
            w = weights(q, k, keys[-4:], tau)
            r = w / w.sum()
            expected.append(-(r * np.log(r)).sum())
        assert found[f"{tau:g}"]["4"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert found["0.1"]["4"] < found["0.1"]["96"] < np.log(32)  # pyright: ignore
    assert found["0.1"]["4"] < found["1"]["4"]  # pyright: ignore


@pytest.mark.parametrize("method", ["simco", "byol"])
def test_entropy_of_a_framework_without_a_dictionary_is_that_of_keys_of_its_images(
    run_of: Callable[[str], Path], method: str
) -> None:
    run = open_trained_run(run_of(method))
    found = penalty_entropy(run, [0.1], [16, 128, 129])["0.1"]
    assert found["129"] is None
    keys, expected = run.keys.double().numpy(), []
    for q, k, _ in anchors(run):
        w = weights(q, k, keys[-16:], 0.1)
        expected.append(-(w / w.sum() * np.log(w / w.sum())).sum())
    assert found["16"] == pytest.approx(np.mean(expected), abs=1e-6)


def test_similarity_is_that_of_two_draws_without_a_common_key(folder: Path) -> None:
    found = redrawn_similarity(open_trained_run(folder), [0.1], [8, 48, 49])
    assert found["0.1"]["49"] is None
    run = open_trained_run(folder)
    keys = run.keys.double().numpy()
    drawn = torch.randperm(96, generator=torch.Generator().manual_seed(run.chosen.seed)).numpy()
    expected = []
    for q, k, redrawn in anchors(run):
        one = weights(q, k, keys[drawn[:8]], 0.1)
        other = weights(q, redrawn, keys[drawn[8:16]], 0.1)
        expected.append(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
    assert found["0.1"]["8"] == pytest.approx(np.mean(expected), abs=1e-6)


def test_the_three_anchors_are_in_the_order_of_their_weight(folder: Path) -> None:
    easy, median, hard = three_anchors(open_trained_run(folder), [0.1, 1.0])
    assert easy["W"]["0.1"] < median["W"]["0.1"] < hard["W"]["0.1"]
    assert hard["s_positive"] < easy["s_positive"]
    for anchor in (easy, median, hard):
        p = [negative["p"]["0.1"] for negative in anchor["negatives"]]
        assert p == sorted(p, reverse=True)
        assert anchor["anchor"] != anchor["positive"]
        assert anchor["positive"] not in [negative["picture"] for negative in anchor["negatives"]]
