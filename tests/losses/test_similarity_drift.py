"""The drift of similarities against a brute force in float64, in tiles and over processes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dualtemp import distributed
from dualtemp.losses import similarity_drift as module
from dualtemp.losses.similarity_drift import similarity_drift


def by_hand(features: np.ndarray, start: np.ndarray) -> float:
    total = 0.0
    for i in range(len(features)):
        for j in range(len(features)):
            one = features[i] @ features[j] / (np.linalg.norm(features[i]) * np.linalg.norm(features[j]))
            other = start[i] @ start[j] / (np.linalg.norm(start[i]) * np.linalg.norm(start[j]))
            total += (one - other) ** 2
    return total / len(features) ** 2


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**31))
def test_value_is_that_of_a_loop_in_float64(N: int, width: int, start_width: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    features, start = draw.normal(size=(N, width)) + 0.1, draw.normal(size=(N, start_width)) + 0.1
    found = similarity_drift(torch.from_numpy(features), torch.from_numpy(start))
    assert float(found) == pytest.approx(by_hand(features, start), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("tile", [1, 8, 1 << 20])
def test_gradient_is_that_of_differences_whatever_the_tile(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TILE", tile)
    features = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    start = torch.randn(7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda x: similarity_drift(x, start), (features,))


def test_nothing_has_drifted_after_a_rotation_and_a_scale() -> None:
    start = torch.randn(20, 8, generator=torch.Generator().manual_seed(0))
    rotation, _ = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1)))
    assert float(similarity_drift(3 * start @ rotation, start)) == pytest.approx(0, abs=1e-12)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="expected, got"):
        similarity_drift(torch.zeros(3, 2), torch.zeros(4, 2))


def halves() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    return (torch.randn(6, 5, generator=draw, dtype=torch.float64) for _ in range(2))  # pyright: ignore


def of_one_process() -> list[float]:
    features, start = halves()
    rank = distributed.rank()
    mine = features[3 * rank : 3 * rank + 3].clone().requires_grad_()
    loss = similarity_drift(mine, start[3 * rank : 3 * rank + 3], gather=True)
    loss.backward()
    assert distributed.world_size() == 2
    assert mine.grad is not None
    return [float(loss.detach()), *(mine.grad / 2).flatten().tolist()]  # processes average


@pytest.mark.slow
def test_two_processes_see_the_whole_batch(tmp_path: Path) -> None:
    from several_processes import run  # here, because the processes read this file without pytest's path

    features, start = halves()
    features.requires_grad_()
    loss = similarity_drift(features, start)
    loss.backward()
    assert features.grad is not None
    found = run(__file__, "of_one_process", 2, tmp_path / "out")
    assert [each[0] for each in found] == pytest.approx([float(loss)] * 2)
    assert [value for each in found for value in each[1:]] == pytest.approx(features.grad.flatten().tolist())


@pytest.mark.parametrize("of_start", [torch.float32, torch.float64])
@pytest.mark.parametrize("of_features", [torch.float32, torch.float64])
def test_features_and_start_may_differ_in_precision(of_features: torch.dtype, of_start: torch.dtype) -> None:
    draw = np.random.default_rng(5)
    features, start = draw.normal(size=(6, 3)), draw.normal(size=(6, 4))
    leaf = torch.from_numpy(features).to(of_features).requires_grad_()
    found = similarity_drift(leaf, torch.from_numpy(start).to(of_start))
    assert found.item() == pytest.approx(by_hand(features, start), rel=1e-5)
    found.backward()
    exact = torch.from_numpy(features).requires_grad_()
    similarity_drift(exact, torch.from_numpy(start)).backward()
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)
