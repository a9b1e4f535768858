"""A map of many points: neighbors stay neighbors, better than on principal components, and the same every time."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import trustworthiness

from dualtemp.analysis import neighbor_layout as module
from dualtemp.analysis.neighbor_layout import neighbor_layout
from dualtemp.studio.space import make_space


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    space = make_space("digits", None, load_digits(return_X_y=True)[0][:900].astype(np.float32))
    return space.features, space.places["components"]


def test_neighbors_stay_neighbors_with_landmarks(
    digits: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EXACT", 200)
    features, start = digits
    steps: list[tuple[int, int]] = []
    places, note = neighbor_layout(features, start, lambda done, total: steps.append((done, total)))
    assert "200 landmarks" in note
    assert steps[-1] == (module.EPOCHS, module.EPOCHS)
    kept, before = (trustworthiness(features, each, n_neighbors=10) for each in (places, start))
    assert kept > 0.95 > 0.9 > before
    again, _ = neighbor_layout(features, start)
    np.testing.assert_array_equal(places, again)
    monkeypatch.setattr(module, "REFINED", 300)
    coarse, note = neighbor_layout(features, start)
    assert "too many to refine" in note
    assert kept > trustworthiness(features, coarse, n_neighbors=10) > before


def test_near_points_are_mostly_the_nearest(digits: tuple[np.ndarray, np.ndarray]) -> None:
    import torch

    x = torch.from_numpy(digits[0])
    landmarks = torch.arange(0, len(x), 9)
    near, _ = module._nearest_landmarks(x, x[landmarks], lambda done, total: None)
    found = module._near_points(x, near, lambda done, total: None)
    s = x.double() @ x.double().T
    s.fill_diagonal_(-2)
    true = s.topk(module.NEIGHBORS, dim=1).indices
    recall = np.mean(
        [len(set(a) & set(b)) / module.NEIGHBORS for a, b in zip(found.tolist(), true.tolist(), strict=True)]
    )
    assert recall > 0.75
    itself = found == torch.arange(len(x))[:, None]
    assert itself.float().mean() < 0.05, "stands in where a cell has few points"
    assert not itself[:, 0].any()


def test_cells_that_hold_most_points_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    x = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
    x[::2] = x[0]  # half of the images are one
    x = torch.nn.functional.normalize(x)
    near, _ = module._nearest_landmarks(x, x[::20], lambda done, total: None)
    whole = module._near_points(x, near, lambda done, total: None)
    monkeypatch.setattr(module, "COSINES", 3_000)
    sizes: list[int] = []
    topk = torch.Tensor.topk
    monkeypatch.setattr(torch.Tensor, "topk", lambda s, *a, **k: sizes.append(s.numel()) or topk(s, *a, **k))
    parts = module._near_points(x, near, lambda done, total: None)
    assert max(sizes) <= 3_000
    similarity = x.double() @ x.double().T
    kept = [similarity.gather(1, found).sort(1).values for found in (whole, parts)]
    torch.testing.assert_close(*kept, rtol=0, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 12])
def test_few_points_have_places(count: int) -> None:
    space = make_space("x", None, np.random.default_rng(0).normal(size=(count, 5)).astype(np.float32))
    places, note = neighbor_layout(space.features, space.places["components"])
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
    assert ("too few" in note) == (count < 8)
